-- A visitor after the other on each connection: the first request has no cookie and gets a proof of
-- cookies, the second shows it and gets a place. Half of the requests are joins.
local cookie

function request()
  return wrk.format("GET", "/", { Host = "localhost", Accept = "application/json", Cookie = cookie })
end

function response(status, headers)
  local set = headers["Set-Cookie"] or headers["set-cookie"]
  cookie = not cookie and set and set:match("^[^;]+") or nil
end

-- One visitor on each connection: a proof of cookies, a place, then nothing but "how do I stand?".
local cookie, placed

function request()
  local path = placed and "/__corvus/wr/bench/status" or "/"
  return wrk.format("GET", path, { Host = "localhost", Accept = "application/json", Cookie = cookie })
end

function response(status, headers)
  local set = headers["Set-Cookie"] or headers["set-cookie"]
  if set then
    placed = cookie ~= nil
    cookie = set:match("^[^;]+")
  end
end

-- Newcomers without end: a request without a cookie brings a proof of cookies, and a request that shows
-- one brings a place. All connections of a thread share one state, so proofs go through a list.
local proofs = {}

function request()
  return wrk.format("GET", "/", { Host = "localhost", Accept = "application/json",
    Cookie = table.remove(proofs) })
end

function response(status, headers)
  local set = headers["Set-Cookie"] or headers["set-cookie"]
  -- v2.<key>.q.<queue>.<sid>.<issued>.<ticket>.<due>.<mac>: ticket 0 is a proof, not a place.
  local cookie, ticket = (set or ""):match("^([^;]+=v2%.[^.]+%.q%.[^.]+%.[^.]+%.[^.]+%.([^.]+)%.[^;]+)")
  if ticket == "0" then proofs[#proofs + 1] = cookie end
end

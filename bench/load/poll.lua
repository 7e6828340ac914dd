-- A thousand visitors take places; from then on they ask in turn how they stand, each less often than
-- a session may. All connections of a thread share one state.
local VISITORS = 1000
local proofs, places, turn = {}, {}, 0

function request()
  local path, cookie = "/", nil
  if #places >= VISITORS then
    turn = turn % VISITORS + 1
    path, cookie = "/__corvus/wr/bench/status", places[turn]
  else
    cookie = table.remove(proofs)
  end
  return wrk.format("GET", path, { Host = "localhost", Accept = "application/json", Cookie = cookie })
end

function response(status, headers)
  if #places >= VISITORS then return end
  local set = headers["Set-Cookie"] or headers["set-cookie"]
  -- v2.<key>.q.<queue>.<sid>.<issued>.<ticket>.<due>.<mac>: ticket 0 is a proof, not a place.
  local cookie, ticket = (set or ""):match("^([^;]+=v2%.[^.]+%.q%.[^.]+%.[^.]+%.[^.]+%.([^.]+)%.[^;]+)")
  if ticket == "0" then
    proofs[#proofs + 1] = cookie
  elseif ticket then
    places[#places + 1] = cookie
  end
end

//! One simulated visitor after another: comes, waits for a turn, looks around, buys or walks off.

use std::{net::SocketAddr, time::Duration};

use tokio::time::sleep;

use super::client::Client;

/// Lives for ever; each life is a new visitor with no cookies.
pub(super) async fn live(number: usize, address: SocketAddr) {
    let mut chance = Chance(number as u64 + 1);
    let mut client = Client::new(address);
    loop {
        client.forget();
        // They do not all come at once.
        sleep(chance.between(200, 6_000)).await;
        if let Err(error) = visit(&mut client, &mut chance).await {
            tracing::debug!(number, %error, "a simulated visitor gave up");
        }
    }
}

async fn visit(client: &mut Client, chance: &mut Chance) -> std::io::Result<()> {
    let mut path = "/".to_owned();
    // In line, until a page of the shop comes.
    loop {
        let answer = client.send("GET", &path).await?;
        match answer.status {
            200 => break,
            302 => {
                let location = answer.header("location").unwrap_or("/");
                let host_end = location.find("://").map_or(0, |at| at + 3);
                let rest = location.get(host_end..).unwrap_or_default();
                path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/").to_owned();
            }
            _ => {
                let seconds =
                    answer.header("retry-after").and_then(|s| s.parse().ok()).unwrap_or(3);
                sleep(Duration::from_secs(seconds)).await;
                // Some lose patience: they just go, as people do.
                if chance.one_in(40) {
                    return Ok(());
                }
            }
        }
    }
    // Inside.
    for _ in 0..chance.up_to(3) {
        sleep(chance.between(800, 2_500)).await;
        client.send("GET", "/goods/balcony").await?;
    }
    sleep(chance.between(800, 2_500)).await;
    if chance.one_in(8) {
        return Ok(()); // Closes the tab; the slot frees itself.
    }
    client.send("POST", "/goods/balcony/buy").await.map(|_| ())
}

/// Enough randomness for a demo.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn up_to(&mut self, most: u64) -> u64 {
        self.next() % (most + 1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    fn between(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        Duration::from_millis(from_ms + self.next() % (to_ms - from_ms))
    }
}

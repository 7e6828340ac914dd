//! A very small shop.

use std::net::SocketAddr;

use axum::{
    Router,
    extract::Path,
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use tokio::net::TcpListener;

const STYLE: &str = include_str!("shop.css");

const GOODS: [(&str, &str, &str); 4] = [
    ("front-row", "Front row", "48.00"),
    ("balcony", "Balcony", "32.00"),
    ("standing", "Standing", "21.00"),
    ("poster", "Signed poster", "12.00"),
];

/// Starts the shop; gives its address.
pub(super) async fn start(listen: SocketAddr) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let shop = Router::new()
        .route("/", get(front))
        .route("/goods/{id}", get(goods))
        .route("/goods/{id}/buy", post(buy))
        .route("/shop.css", get(|| async { ([(header::CONTENT_TYPE, "text/css")], STYLE) }))
        .route("/healthz", get(|| async { "ok" }));
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, shop).await {
            tracing::error!(%error, "the sample shop ended");
        }
    });
    Ok(address)
}

fn page(title: &str, body: &str) -> Html<String> {
    Html(format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <link rel=\"stylesheet\" href=\"/shop.css\"><link rel=\"icon\" href=\"data:,\"></head>\
         <body><header><a href=\"/\">The Small Hall</a></header><main>{body}</main></body></html>"
    ))
}

async fn front() -> Html<String> {
    let goods = GOODS.map(|(id, name, price)| {
        format!("<li><a href=\"/goods/{id}\"><b>{name}</b><span>€ {price}</span></a></li>")
    });
    let goods = goods.concat();
    page(
        "The Small Hall",
        &format!("<h1>Tonight, 20:00</h1><p>You are inside. Take your time.</p><ul>{goods}</ul>"),
    )
}

async fn goods(Path(id): Path<String>) -> Response {
    let Some((id, name, price)) = GOODS.iter().find(|(known, ..)| *known == id) else {
        return (StatusCode::NOT_FOUND, page("Not here", "<h1>We do not sell that.</h1>"))
            .into_response();
    };
    page(
        name,
        &format!(
            "<h1>{name}</h1><p>€ {price}</p>\
             <form method=\"post\" action=\"/goods/{id}/buy\"><button>Buy</button></form>"
        ),
    )
    .into_response()
}

/// A purchase is the end of a visit: the shop gives the place back.
async fn buy(Path(id): Path<String>) -> Response {
    let name = GOODS.iter().find(|(known, ..)| *known == id).map_or("Nothing", |(_, name, _)| name);
    (
        [("corvus-queue", "release")],
        page("Thank you", &format!("<h1>Thank you!</h1><p>{name} is yours. Your place is free for the next visitor.</p>")),
    )
        .into_response()
}

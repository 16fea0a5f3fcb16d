//! Who may do what: tokens and users.

use super::{Cli, column, property, rows};

const LIST: [&str; 2] = ["--list-mode", "list"];

pub(super) fn tokens(cli: &Cli) {
    let said = cli.ok(&["pat", "create", "robot", "1h"]);
    let token = said
        .lines()
        .find_map(|line| line.strip_prefix("Token: "))
        .expect("the token is printed once");
    cli.refused(&["pat", "create", "robot", "1h"], "already exists");
    let me = rows(&cli.ok_with_token(token, &["me"]));
    assert_eq!(property(&me, "User ID"), "0");
    let listed = cli.rows(&[&["pat", "list"][..], &LIST].concat());
    assert_eq!(column(&listed, 0), ["robot"]);

    // It deletes the token, and then its copy in the desktop's keyring, if there is a desktop.
    let _ = cli.execute(
        &["--username", "iggy", "--password", "iggy"],
        &["pat", "delete", "robot"],
    );
    assert!(cli.rows(&[&["pat", "list"][..], &LIST].concat()).is_empty());
    cli.refused_with_token(token, &["me"], "Invalid");
    cli.refused_with_token("0123456789abcdef", &["me"], "Invalid");
}

pub(super) fn users(cli: &Cli) {
    let rights = ["--global-permissions", "read_streams,read_topics"];
    let create = ["user", "create", "anna", "secret-1"];
    cli.ok(&[&create[..], &rights].concat());
    cli.refused(&create, "already exists");
    cli.refused(&["user", "create", "ab", "secret-1"], "username");

    let listed = cli.rows(&[&["user", "list"][..], &LIST].concat());
    assert_eq!(column(&listed, 3), ["iggy", "anna"]);
    assert_eq!(column(&listed, 2), ["active", "active"]);
    let user = cli.rows(&["user", "get", "anna"]);
    assert_eq!(property(&user, "Username"), "anna");
    assert_eq!(property(&user, "Status"), "active");

    let anna = ("anna", "secret-1");
    let streams = rows(&cli.ok_as(anna.0, anna.1, &["stream", "list", "-l", "list"]));
    assert_eq!(column(&streams, 2), ["orders"]);
    let create = ["stream", "create", "hers"];
    cli.refused_as(anna.0, anna.1, &create, "Unauthorized");
    cli.refused_as(anna.0, anna.1, &["user", "list"], "Unauthorized");

    permissions(cli);
    password_and_name(cli);
}

/// Rights of a stream and of a topic in it open what they name, and nothing else.
fn permissions(cli: &Cli) {
    cli.ok(&["stream", "create", "other"]);
    cli.ok(&["topic", "create", "other", "closed", "1", "none"]);
    let stream = "0:read_stream#0:send_messages,poll_messages";
    let set = [
        "user",
        "permissions",
        "anna",
        "--stream-permissions",
        stream,
    ];
    cli.ok(&set);
    assert_eq!(
        granted(cli),
        ["Read Stream", "Poll Messages", "Send Messages"]
    );

    let as_anna = |words: &[&str]| cli.ok_as("anna", "secret-1", words);
    as_anna(&["message", "send", "orders", "placed", "-p", "2", "hello"]);
    let polled = as_anna(&["message", "poll", "orders", "placed", "2", "--last"]);
    assert_eq!(column(&rows(&polled), 4)[1..], ["hello"]);
    let elsewhere = ["message", "send", "other", "closed", "hello"];
    cli.refused_as("anna", "secret-1", &elsewhere, "Unauthorized");

    cli.ok(&["user", "permissions", "anna"]);
    let placed = ["message", "send", "orders", "placed", "hello"];
    cli.refused_as("anna", "secret-1", &placed, "Unauthorized");
}

/// The names of the rights that the client shows of the user as given.
fn granted(cli: &Cli) -> Vec<String> {
    let user = cli.ok(&["user", "get", "anna"]);
    let given = user.lines().filter(|line| line.contains("true"));
    given
        .map(|line| {
            let cells = line.split('|').map(str::trim);
            cells.rev().nth(2).unwrap_or_default().to_owned()
        })
        .collect()
}

fn password_and_name(cli: &Cli) {
    cli.refused(
        &["user", "password", "anna", "wrong-1", "secret-2"],
        "Invalid credentials",
    );
    cli.ok(&["user", "password", "anna", "secret-1", "secret-2"]);
    cli.refused_as("anna", "secret-1", &["me"], "Invalid credentials");
    cli.ok_as("anna", "secret-2", &["me"]);

    cli.ok(&["user", "name", "anna", "anneli"]);
    cli.ok_as("anneli", "secret-2", &["me"]);
    cli.ok(&["user", "status", "anneli", "inactive"]);
    cli.refused_as("anneli", "secret-2", &["me"], "Invalid credentials");
    cli.ok(&["user", "status", "anneli", "active"]);
    cli.ok_as("anneli", "secret-2", &["me"]);

    cli.ok(&["user", "delete", "anneli"]);
    cli.refused(&["user", "delete", "anneli"], "not found");
    cli.refused(&["user", "delete", "iggy"], "Cannot delete user");
    cli.refused_as("anneli", "secret-2", &["me"], "Invalid credentials");
}

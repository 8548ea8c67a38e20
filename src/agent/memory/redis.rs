//! Notes in a hash of Redis, for agents on several machines.

use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue};
use tokio::sync::Mutex;

use super::{MAX_NOTE, MAX_NOTES, Memory, MemoryError, Note, Remembered, check_name, check_size};

/// How long Redis may take to be reached, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// KEYS: the hash. ARGV: name, text, `w` or `a`, most notes, most bytes of one. Gives `ok`, `full`, or
/// the length that the note would have.
const PUT: &str = r"
local name, text = ARGV[1], ARGV[2]
local old = redis.call('HGET', KEYS[1], name)
if not old and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return 'full' end
if ARGV[3] == 'a' then text = (old or '') .. text end
if #text > tonumber(ARGV[5]) then return tostring(#text) end
redis.call('HSET', KEYS[1], name, text)
return 'ok'
";

/// Names with the lengths of their texts, without the texts.
const LIST: &str = r"
local out = {}
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
  out[#out + 1] = name
  out[#out + 1] = tostring(redis.call('HSTRLEN', KEYS[1], name))
end
return out
";

/// Notes in Redis, over a plain connection that is made when it is needed, and again when it broke.
#[derive(Debug)]
pub struct Redis {
    client: Client,
    key: String,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Redis {
    /// Notes under a key of the server at this URL (`redis://` or `redis+unix://`).
    ///
    /// # Errors
    /// It is no such URL.
    pub fn new(url: &str, key: &str) -> Remembered<Self> {
        let client = Client::open(url).map_err(|error| broken(&error))?;
        Ok(Self {
            client,
            key: key.to_owned(),
            connection: Mutex::default(),
        })
    }

    /// The lock is held while a connection is made, never while one is used.
    async fn connection(&self) -> Remembered<MultiplexedConnection> {
        let mut held = self.connection.lock().await;
        if let Some(connection) = &*held {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let made = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await;
        let made = made.map_err(|error| broken(&error))?;
        *held = Some(made.clone());
        Ok(made)
    }

    /// What an answer came to; after a fault the next operation connects anew.
    async fn ended<T>(&self, answer: Result<T, redis::RedisError>) -> Remembered<T> {
        if answer.is_err() {
            *self.connection.lock().await = None;
        }
        answer.map_err(|error| broken(&error))
    }

    async fn send<T: FromRedisValue>(&self, command: &Cmd) -> Remembered<T> {
        let mut connection = self.connection().await?;
        let answer = command.query_async(&mut connection).await;
        self.ended(answer).await
    }

    /// A script on the hash; scripts are short, and so sent whole.
    fn script(&self, script: &str) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg(&self.key);
        command
    }

    async fn ask<T: FromRedisValue>(&self, command: &str, name: &str) -> Remembered<T> {
        check_name(name)?;
        let mut command = redis::cmd(command);
        self.send(command.arg(&self.key).arg(name)).await
    }

    async fn change(&self, name: &str, text: &str, how: &str) -> Remembered<()> {
        check_name(name)?;
        check_size(text.len())?;
        let mut put = self.script(PUT);
        put.arg(name)
            .arg(text)
            .arg(how)
            .arg(MAX_NOTES)
            .arg(MAX_NOTE);
        let answer: String = self.send(&put).await?;
        match answer.as_str() {
            "ok" => Ok(()),
            "full" => Err(MemoryError::Full),
            bytes => Err(MemoryError::TooLong(bytes.parse().unwrap_or(usize::MAX))),
        }
    }
}

/// The server's words; the URL may hold a password and is not told.
fn broken(error: &redis::RedisError) -> MemoryError {
    MemoryError::Broken {
        place: "redis".to_owned(),
        reason: error.to_string(),
    }
}

impl Memory for Redis {
    fn list(&self) -> BoxFuture<'_, Remembered<Vec<Note>>> {
        Box::pin(async move {
            let all: Vec<(String, u64)> = self.send(&self.script(LIST)).await?;
            let note = |(name, bytes)| Note { name, bytes };
            let mut notes: Vec<Note> = all.into_iter().map(note).collect();
            notes.sort_unstable_by(|one, other| one.name.cmp(&other.name));
            Ok(notes)
        })
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Remembered<String>> {
        Box::pin(async move {
            let text: Option<String> = self.ask("HGET", name).await?;
            text.ok_or_else(|| MemoryError::Missing(name.to_owned()))
        })
    }

    fn write<'a>(&'a self, name: &'a str, text: &'a str) -> BoxFuture<'a, Remembered<()>> {
        Box::pin(self.change(name, text, "w"))
    }

    fn append<'a>(&'a self, name: &'a str, text: &'a str) -> BoxFuture<'a, Remembered<()>> {
        Box::pin(self.change(name, text, "a"))
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Remembered<()>> {
        Box::pin(async move {
            let gone: u64 = self.ask("HDEL", name).await?;
            match gone {
                0 => Err(MemoryError::Missing(name.to_owned())),
                _ => Ok(()),
            }
        })
    }
}

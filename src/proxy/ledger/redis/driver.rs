//! The task that talks to Redis: one connection, one pipeline at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, ServerError, Value};
use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

use super::Shared;
use super::answer::read_settled;
use super::call::{self, Hashes, Renewal, SCRIPTS};
use super::queue::Job;

/// Jobs that are sent together.
const MAX_BATCH: usize = 256;
/// Renewals that are sent together with them.
const MAX_RENEWALS: usize = 64;
/// The first pause after two failures in a row; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// What Redis says before it has done anything of a script, and may not say later.
const PASSING: [&str; 8] = [
    "NOSCRIPT",
    "LOADING",
    "BUSY",
    "MASTERDOWN",
    "READONLY",
    "OOM",
    "TRYAGAIN",
    "NOREPLICAS",
];

/// A connection with the scripts loaded.
struct Link {
    connection: MultiplexedConnection,
    hashes: Hashes,
}

/// What of a pipeline is to be sent again, and why.
struct Broken {
    jobs: Vec<Job>,
    why: String,
}

struct Driver {
    shared: Arc<Shared>,
    client: Client,
    /// Names this gateway among those that share the books.
    gateway: u128,
    /// Of the last settlement that was sent.
    number: u64,
    renew_at: Instant,
    renewals: VecDeque<Renewal>,
    /// Failures in a row.
    failures: u32,
}

/// Talks to Redis until the books are dropped.
pub(super) async fn run(shared: Arc<Shared>, client: Client) {
    let renew_at = Instant::now() + shared.timing.renew;
    let mut driver = Driver {
        shared,
        client,
        gateway: Uuid::new_v4().as_u128(),
        number: 0,
        renew_at,
        renewals: VecDeque::new(),
        failures: 0,
    };
    while let Some(why) = driver.talk().await {
        if driver.failures == 1 {
            tracing::warn!("shared caps: {why}");
        }
        if !driver.pause(&why).await {
            break;
        }
    }
    driver.end();
}

impl Driver {
    /// Connects and sends what comes, until that fails; then says why. Nothing when the books were
    /// dropped and all has been sent.
    async fn talk(&mut self) -> Option<String> {
        let mut link = match self.connect().await {
            Ok(link) => link,
            Err(why) => {
                self.failed();
                return Some(why);
            }
        };
        // Leases may have come near their end meanwhile.
        if self.failures > 0 {
            self.renew_at = Instant::now();
        }
        loop {
            if self.renewals.is_empty() {
                tokio::select! {
                    biased;
                    () = self.shared.queue.more() => {}
                    () = sleep_until(self.renew_at) => {}
                }
            }
            if self.shared.queue.is_closed() && self.shared.queue.is_empty() {
                return None;
            }
            if self.renew_at <= Instant::now() {
                self.renewals = Renewal::all(&self.shared.live.holds()).into();
                self.renew_at = Instant::now() + self.shared.timing.renew;
            }
            let jobs = self.shared.queue.take(MAX_BATCH);
            if let Err(broken) = self.exchange(&mut link, jobs).await {
                self.shared.queue.put_back(broken.jobs);
                self.failed();
                return Some(broken.why);
            }
            if self.failures > 0 {
                if self.failures > 1 {
                    tracing::info!("shared caps: Redis is back");
                }
                self.failures = 0;
                self.shared.down.store(false, Ordering::Relaxed);
            }
        }
    }

    fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        if self.failures > 1 {
            self.shared.down.store(true, Ordering::Relaxed);
        }
    }

    async fn connect(&self) -> Result<Link, String> {
        let limit = self.shared.timing.answer;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(Some(limit));
        let connecting = async {
            let mut connection = self
                .client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map_err(|e| format!("cannot connect to Redis: {e}"))?;
            let mut load = Pipeline::new();
            for script in SCRIPTS {
                load.cmd("SCRIPT").arg("LOAD").arg(script);
            }
            let loaded = connection
                .send_packed_commands(&load, 0, SCRIPTS.len())
                .await
                .map_err(|e| format!("cannot connect to Redis: {e}"))?;
            for value in &loaded {
                if let Value::ServerError(error) = value {
                    return Err(refusal(error));
                }
            }
            let hashes = Hashes::read(loaded)?;
            Ok(Link { connection, hashes })
        };
        // A second limit, over both steps and what else may take its time.
        timeout(limit, connecting).await.unwrap_or_else(|_| {
            let ms = limit.as_millis();
            Err(format!("cannot connect to Redis within {ms} ms"))
        })
    }

    /// Sends jobs, and renewals that are due, as one pipeline, and hands out the answers.
    async fn exchange(&mut self, link: &mut Link, mut jobs: Vec<Job>) -> Result<(), Broken> {
        let mut pipeline = Pipeline::with_capacity(jobs.len() + 1);
        let (lease, levels) = (self.shared.timing.lease, &self.shared.levels);
        for job in &mut jobs {
            pipeline.add_command(match job {
                Job::Ask(asking) => call::ask(&link.hashes, asking, lease, levels),
                Job::Settle(settling) => {
                    let number = *settling.number.get_or_insert_with(|| {
                        self.number += 1;
                        self.number
                    });
                    call::settle(&link.hashes, self.gateway, number, settling, levels)
                }
            });
        }
        let renewed = self.renewals.len().min(MAX_RENEWALS);
        for renewal in self.renewals.drain(..renewed) {
            pipeline.add_command(renewal.cmd(&link.hashes, lease));
        }
        if pipeline.is_empty() {
            // Notices a connection that has broken before a request has to.
            pipeline.cmd("PING");
        }
        let sent = pipeline.len();
        match link
            .connection
            .send_packed_commands(&pipeline, 0, sent)
            .await
        {
            Ok(values) => self.hand_out(jobs, values),
            Err(error) => Err(Broken {
                jobs: self.once_more(jobs, error.is_timeout()),
                why: format!("Redis does not answer: {error}"),
            }),
        }
    }

    /// Of jobs whose answer did not come, what is to be sent again. Asks are, once, but not when
    /// time has run out.
    fn once_more(&self, jobs: Vec<Job>, late: bool) -> Vec<Job> {
        let mut again = Vec::with_capacity(jobs.len());
        for job in jobs {
            match job {
                Job::Ask(asking) if late || asking.tried => {
                    asking.answer(Err("the connection to Redis broke".into()));
                }
                Job::Ask(mut asking) => {
                    asking.tried = true;
                    again.push(Job::Ask(asking));
                }
                Job::Settle(_) => again.push(job),
            }
        }
        again
    }

    fn hand_out(&self, jobs: Vec<Job>, values: Vec<Value>) -> Result<(), Broken> {
        let mut broken = Broken {
            jobs: Vec::new(),
            why: String::new(),
        };
        let mut values = values.into_iter();
        for job in jobs {
            let value = values.next().unwrap_or(Value::Nil);
            let error = match &value {
                Value::ServerError(error) => Some(error),
                _ => None,
            };
            let passing = error.is_some_and(|error| PASSING.contains(&error.code()));
            if let (Some(error), true) = (error, passing) {
                broken.why = refusal(error);
            }
            match job {
                Job::Ask(mut asking) => match error {
                    Some(error) if error.code() == "NOSCRIPT" && !asking.tried => {
                        asking.tried = true;
                        broken.jobs.push(Job::Ask(asking));
                    }
                    Some(error) => asking.answer(Err(refusal(error))),
                    None => asking.answer(Ok(value)),
                },
                Job::Settle(mut settling) if passing => {
                    // Later ones may have been booked, so it needs a number after theirs.
                    settling.number = None;
                    broken.jobs.push(Job::Settle(settling));
                }
                Job::Settle(settling) => {
                    let read = match error {
                        Some(error) => Err(refusal(error)),
                        None => read_settled(&settling.ask, value),
                    };
                    match read {
                        Ok(crossings) => settling.tell(crossings),
                        Err(why) => {
                            tracing::error!("shared caps: a settlement is lost: {why}");
                            self.shared.lose(settling);
                        }
                    }
                    self.shared.queue.settled_one();
                }
            }
        }
        // The rest are answers to renewals.
        for value in values {
            if let Value::ServerError(error) = value {
                broken.why = refusal(&error);
            }
        }
        if broken.why.is_empty() {
            Ok(())
        } else {
            Err(broken)
        }
    }

    /// Waits before the next attempt, and meanwhile answers requests. False when the books were
    /// dropped.
    async fn pause(&self, why: &str) -> bool {
        // After the first failure there is no pause: a connection that was idle for long may just
        // have been closed.
        let Some(doublings) = self.failures.checked_sub(2) else {
            return true;
        };
        let pause = FIRST_PAUSE.saturating_mul(1 << doublings.min(10));
        let until = Instant::now() + pause.min(self.shared.timing.pause);
        loop {
            for asking in self.shared.queue.take_asks() {
                asking.answer(Err(why.to_owned()));
            }
            if self.shared.queue.is_closed() {
                return false;
            }
            tokio::select! {
                () = self.shared.queue.change() => {}
                () = sleep_until(until) => return true,
            }
        }
    }

    /// Gives up what is left.
    fn end(&self) {
        loop {
            let jobs = self.shared.queue.take(MAX_BATCH);
            if jobs.is_empty() && self.shared.queue.is_empty() {
                return;
            }
            for job in jobs {
                match job {
                    Job::Ask(asking) => asking.answer(Err("the books are closed".into())),
                    Job::Settle(settling) => {
                        self.shared.lose(settling);
                        self.shared.queue.settled_one();
                    }
                }
            }
        }
    }
}

fn refusal(error: &ServerError) -> String {
    format!("Redis refuses: {error}")
}

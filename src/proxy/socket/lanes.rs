//! The responses of a connection that are under way, lane by lane.
//!
//! Responses of one lane are made one after another, so an event belongs to the first of its lane;
//! and what we say in the place of a response has its turn like one.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::frame::Message;
use crate::provider::anthropic::answer::STREAM_TYPE;
use crate::provider::openai::socket::{Said, Step};
use crate::provider::reader::Reader;
use crate::proxy::account::{Account, End};

/// Responses of one connection that are under way or wait, and answers of ours among them.
const MAX_OPEN: usize = 256;

/// Who began to close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    Client,
    /// With this code.
    Upstream(Option<u16>),
}

/// A response that was asked for.
#[derive(Debug)]
pub(super) struct Turn {
    account: Account,
    reader: Reader,
    /// An event of it has come.
    begun: bool,
}

#[derive(Debug)]
enum Entry {
    Turn(Box<Turn>),
    /// Frames of ours.
    Own(Vec<u8>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Lanes {
    /// None of them is empty, and none begins with frames of ours.
    lanes: HashMap<Option<String>, VecDeque<Entry>>,
    open: usize,
    /// Frames of ours whose turn it is.
    due: VecDeque<Vec<u8>>,
    /// When a response was last asked for.
    pub(super) touched: Instant,
    pub(super) parted: Option<Party>,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self {
            lanes: HashMap::new(),
            open: 0,
            due: VecDeque::new(),
            touched: Instant::now(),
            parted: None,
        }
    }

    /// Whether one more response may be asked for.
    pub(super) fn has_room(&self) -> bool {
        self.open < MAX_OPEN
    }

    /// Whether an answer is owed.
    pub(super) fn waiting(&self) -> bool {
        self.open > 0
    }

    /// Whether an answer is owed on this lane.
    pub(super) fn expects(&self, lane: &Option<String>) -> bool {
        self.lanes.contains_key(lane)
    }

    /// A response is asked for.
    pub(super) fn ask(&mut self, lane: Option<String>, account: Account, reader: Reader) {
        self.touched = Instant::now();
        let turn = Turn {
            account,
            reader,
            begun: false,
        };
        self.push(lane, Entry::Turn(Box::new(turn)));
    }

    /// Frames of ours are to be written once the lane has answered what was asked before.
    pub(super) fn say(&mut self, lane: Option<String>, frames: Vec<u8>) {
        if self.expects(&lane) && self.has_room() {
            self.push(lane, Entry::Own(frames));
        } else {
            self.due.push_back(frames);
        }
    }

    fn push(&mut self, lane: Option<String>, entry: Entry) {
        self.open += 1;
        self.lanes.entry(lane).or_default().push_back(entry);
    }

    /// How many messages of ours could be written now.
    pub(super) fn due(&self) -> usize {
        self.due.len()
    }

    /// What of ours is to be written now.
    pub(super) fn take_due(&mut self) -> Vec<u8> {
        self.due.drain(..).flatten().collect()
    }

    /// One side has begun to close the connection.
    pub(super) fn part(&mut self, party: Party) {
        self.parted.get_or_insert(party);
    }

    /// An event of the upstream passes by. Gives what it has ended.
    pub(super) fn heard(&mut self, said: &Said, message: &Message) -> Option<Ended> {
        if !said.of_response {
            return None;
        }
        let lane = self.lane_of(said)?;
        let queue = self.lanes.get_mut(&lane)?;
        // An error with a status and no number refuses a request, which has no event yet.
        let unbegun = |entry: &Entry| matches!(entry, Entry::Turn(turn) if !turn.begun);
        let refuses = said.step == Step::Failed && !said.numbered;
        let at = queue.iter().position(unbegun).filter(|_| refuses);
        let at = at.unwrap_or(0);
        let Some(Entry::Turn(turn)) = queue.get_mut(at) else {
            return None;
        };
        turn.heard(said, message);
        if !matches!(said.step, Step::Ended | Step::Failed) {
            return None;
        }
        let ended = queue.remove(at);
        self.open -= 1;
        while let Some(Entry::Own(frames)) = queue.front_mut() {
            self.due.push_back(std::mem::take(frames));
            queue.pop_front();
            self.open -= 1;
        }
        if queue.is_empty() {
            self.lanes.remove(&lane);
        }
        match ended {
            Some(Entry::Turn(turn)) => Some(Ended(turn)),
            _ => None,
        }
    }

    /// The lane of an event. Some events do not name theirs.
    fn lane_of(&self, said: &Said) -> Option<Option<String>> {
        if self.lanes.contains_key(&said.lane) {
            return Some(said.lane.clone());
        }
        let mut lanes = self.lanes.keys();
        match (lanes.next(), lanes.next()) {
            (Some(only), None) if said.lane.is_none() => Some(only.clone()),
            _ => None,
        }
    }

    /// The connection has ended, and so have all answers. Later calls find none.
    pub(super) fn close(&mut self, end: &End) {
        self.open = 0;
        for (_, queue) in self.lanes.drain() {
            for entry in queue {
                if let Entry::Turn(turn) = entry {
                    turn.end(end.clone());
                }
            }
        }
    }
}

/// A response that has had its last event.
pub(super) struct Ended(Box<Turn>);

impl Ended {
    /// Closes its account.
    pub(super) fn finish(self) {
        self.0.end(End::Complete);
    }
}

impl Turn {
    fn heard(&mut self, said: &Said, message: &Message) {
        let account = &mut self.account;
        if !self.begun {
            self.begun = true;
            let head_us = account.elapsed_us();
            let failed = said.step == Step::Failed;
            let status = if failed { said.status } else { Some(200) };
            if let Some(record) = account.record() {
                record.head_us = Some(head_us);
                record.status = status;
            }
            if !failed {
                account.began();
            }
            let status = status.and_then(|status| StatusCode::from_u16(status).ok());
            let mut headers = HeaderMap::new();
            // Events are kept as those of a stream.
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(STREAM_TYPE));
            account.captured_head(status.unwrap_or_default(), &headers);
        }
        account.delivered(usize::try_from(message.bytes).unwrap_or(usize::MAX));
        if message.is_whole() {
            captured(account, &message.payload);
            self.reader.event(&message.payload);
        } else {
            self.reader.lost_event(said.step == Step::Ended);
        }
        if self.reader.answer().content_begun {
            account.content_began();
        }
    }

    fn end(self, end: End) {
        let Self {
            mut account,
            mut reader,
            ..
        } = self;
        reader.end(account.inferred_ttl());
        account.finish_later(end, Some(reader.into_answer()));
    }
}

/// Keeps an event in the spelling of a stream, in which line ends outside of strings would end it.
fn captured(account: &mut Account, event: &Bytes) {
    account.captured_bytes(b"data: ");
    for (n, line) in event
        .split(|byte| matches!(byte, b'\r' | b'\n'))
        .enumerate()
    {
        if n > 0 {
            account.captured_bytes(b" ");
        }
        account.captured_bytes(line);
    }
    account.captured_bytes(b"\n\n");
}

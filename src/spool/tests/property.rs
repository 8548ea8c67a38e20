//! Any sequence of appending, claiming, settling, ends and kills, with the last segment cut anywhere.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    /// Records of so many bytes.
    Append(Vec<usize>),
    Claim(usize, usize),
    /// Settle this share of the claimed batch, in eighths.
    Ack(u64),
    Close,
    Kill,
    /// Also cuts the last segment: what remains of it, in thousandths.
    Cut(u64),
    /// The disk takes so many bytes, and nothing after, or everything again.
    Disk(Option<usize>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(0..400_usize, 1..12).prop_map(Step::Append),
        4 => (1..20_usize, 1..2_000_usize).prop_map(|(records, bytes)| Step::Claim(records, bytes)),
        4 => (1..=8_u64).prop_map(Step::Ack),
        1 => Just(Step::Close),
        1 => Just(Step::Kill),
        1 => (0..1_000_u64).prop_map(Step::Cut),
        1 => prop::option::of(0..3_000_usize).prop_map(Step::Disk),
    ]
}

/// What the records were, by number, and what came.
struct Model {
    dir: TempDir,
    limits: Limits,
    spool: Option<Spool>,
    claimed: Option<Claimed>,
    /// Texts of the records that are stored.
    stored: BTreeMap<u64, String>,
    appended: u64,
    /// Records that were handed over.
    accepted: u64,
    /// Appended records that a cut has removed without a trace.
    forgotten: u64,
    /// Numbers that were settled as delivered.
    delivered: Vec<u64>,
    next: u64,
}

impl Model {
    fn new(limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spool = Some(open(dir.path(), limits));
        Self {
            dir,
            limits,
            spool,
            claimed: None,
            stored: BTreeMap::new(),
            appended: 0,
            accepted: 0,
            forgotten: 0,
            delivered: Vec::new(),
            next: 1,
        }
    }

    fn spool(&mut self) -> &mut Spool {
        self.spool.as_mut().unwrap()
    }

    fn next_number(&self) -> u64 {
        let spool = self.spool.as_ref().unwrap();
        spool.writer.shared().state().next
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append(sizes) => {
                for size in sizes {
                    self.accepted += 1;
                    let text = format!("{} {}", self.accepted, "x".repeat(size));
                    if self.spool().append(&[&text]) == 1 {
                        self.stored.insert(self.next, text);
                        self.next += 1;
                        self.appended += 1;
                    }
                }
            }
            Step::Claim(records, bytes) => {
                let claimed = self.spool().take(most(records, bytes));
                if let (Some(before), Some(now)) = (self.claimed.clone(), &claimed) {
                    // Another process may find that it was dropped meanwhile, to make room.
                    let floor = self.spool().writer.shared().state().floor;
                    let same = before.batch == now.batch;
                    assert!(
                        same || floor > before.batch.first,
                        "not the same batch again"
                    );
                }
                if let Some(claimed) = &claimed {
                    for (n, text) in numbered(claimed) {
                        assert_eq!(self.stored.get(&n), Some(&text));
                    }
                }
                self.claimed = claimed;
            }
            Step::Ack(eighths) => {
                let Some(mut claimed) = self.claimed.take() else {
                    return;
                };
                let (first, end) = (claimed.batch.first, claimed.batch.end());
                let to = first + (end - first).div_ceil(8) * eighths;
                let to = to.min(end);
                self.delivered.extend(first..to);
                self.spool().ack(to);
                if to < end {
                    claimed.batch = claimed.batch.part(to, end);
                    self.claimed = Some(claimed);
                }
            }
            Step::Close => self.spool.take().unwrap().writer.close().unwrap(),
            Step::Kill => self.spool = None,
            Step::Cut(thousandths) => {
                self.spool = None;
                // Also what is claimed can be cut off.
                self.claimed = None;
                if let Some(last) = segments(self.dir.path()).pop() {
                    let file = File::options().write(true).open(last).unwrap();
                    let len = file.metadata().unwrap().len();
                    file.set_len(len * thousandths / 1_000).unwrap();
                }
            }
            Step::Disk(room) => self.spool().disk.set(|faults| faults.room = room),
        }
        if self.spool.is_none() {
            self.spool = Some(open(self.dir.path(), self.limits));
            let next = self.next_number();
            assert!(next <= self.next, "a number was skipped");
            self.forgotten += self.next - next;
            self.stored.split_off(&next);
            self.next = next;
        }
        self.check();
    }

    fn check(&self) {
        let spool = self.spool.as_ref().unwrap();
        spool.check();
        let counted = spool.counted();
        assert_eq!(counted.accepted() + self.forgotten, self.accepted);
        assert_eq!(counted.delivered, self.delivered.len() as u64);
        assert!(self.delivered.is_sorted_by(|one, next| one < next));
        let disk: u64 = segments(self.dir.path())
            .iter()
            .map(|file| std::fs::metadata(file).unwrap().len())
            .sum();
        assert!(disk <= self.limits.max_bytes);
        assert!(spool.monitor().disk_bytes() <= disk);
    }

    /// Drains what is left: everything has come once, in order, or is counted.
    fn end(mut self) {
        self.step(Step::Disk(None));
        loop {
            self.step(Step::Claim(50, 50_000));
            if self.claimed.is_none() {
                break;
            }
            self.step(Step::Ack(8));
        }
        let counted = self.spool().counted();
        assert_eq!(self.spool().monitor().waiting().records, 0);
        assert_eq!(
            counted.delivered + counted.dropped_total() + self.forgotten,
            self.accepted
        );
        let status = crate::spool::status(self.dir.path()).unwrap();
        assert_eq!(status.waiting.records, 0);
    }
}

fn run(limits: Limits, steps: Vec<Step>) {
    let mut model = Model::new(limits);
    for step in steps {
        model.step(step);
    }
    model.end();
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn e03_each_record_is_delivered_once_and_in_order_or_counted(steps in steps()) {
        run(limits(1 << 20, Full::DropOldest, 2_000), steps);
    }

    #[test]
    fn e03_also_where_the_oldest_make_room(steps in steps()) {
        run(limits(6_000, Full::DropOldest, 1_500), steps);
    }

    #[test]
    fn e03_also_where_the_newest_are_turned_away(steps in steps()) {
        run(limits(6_000, Full::DropNewest, 1_500), steps);
    }
}

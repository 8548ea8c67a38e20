//! Plan and execute: a plan, an agent for each of its steps, and another plan where one fails.

use std::fmt::Write as _;

use serde::Deserialize;

use super::{PatternError, Report, Site, can_be_asked, ended, form, is_final};
use crate::agent::driver::Agent;
use crate::agent::journal::MAIN;
use crate::agent::machine::Outcome;
use crate::agent::notice::Notice;

/// How often a model is asked for a form that it gets wrong.
const MAX_TRIES: u32 = 3;

const PLAN_SCHEMA: &str = r#"{"type":"object","properties":{"steps":{"type":"array","minItems":1,"maxItems":20,"items":{"type":"object","properties":{"title":{"type":"string","minLength":1,"maxLength":120},"task":{"type":"string","minLength":1},"done_when":{"type":"string","minLength":1}},"required":["title","task","done_when"],"additionalProperties":false}}},"required":["steps"],"additionalProperties":false}"#;

const REVIEW_SCHEMA: &str = r#"{"type":"object","properties":{"done":{"type":"boolean"},"summary":{"type":"string","minLength":1,"maxLength":2000}},"required":["done","summary"],"additionalProperties":false}"#;

const PLAN: &str = "Make a plan for the task below; others will carry out its steps, one after the \
other, each without having seen this conversation. Look at what you need to know first, and change \
nothing. Then answer with one JSON object and nothing else:\n\
{\"steps\": [{\"title\": \"a few words\", \"task\": \"all that is to be done, with the places\", \
\"done_when\": \"how to see that it is done\"}]}\n\
Few steps, each worth an agent of its own; the last one verifies the whole.";

const REVIEW: &str = "Review the step that you were given. By what you have seen, not by what was \
intended: is it done? Call no tool. Answer with one JSON object and nothing else: {\"done\": true or \
false, \"summary\": \"what was done and found, for whoever goes on; or what stands in the way\"}";

/// A plan that the model makes, and agents that carry it out.
///
/// After each step its own agent reviews it. A step that is not done ends the plan: another one is
/// made of what is left. Answers in a wrong form are asked for again, with all that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanExecute {
    /// Most steps of all plans together.
    pub steps: u32,
    /// Most plans after the first.
    pub replans: u32,
}

impl Default for PlanExecute {
    fn default() -> Self {
        Self {
            steps: 30,
            replans: 2,
        }
    }
}

#[derive(Debug, Deserialize)]
struct Plan {
    steps: Vec<Planned>,
}

#[derive(Debug, Deserialize)]
struct Planned {
    title: String,
    task: String,
    done_when: String,
}

#[derive(Debug, Deserialize)]
struct Review {
    done: bool,
    summary: String,
}

/// What has become of the task so far.
#[derive(Debug, Default)]
struct Story {
    /// Steps that are done, with what is told of them.
    done: Vec<(String, String)>,
    /// The step that is not, and why.
    failed: Option<(String, String)>,
}

impl PlanExecute {
    pub(super) async fn work(
        &self,
        site: &mut Site<'_>,
        task: &str,
    ) -> Result<Report, PatternError> {
        let mut story = Story::default();
        let mut answer = None;
        let mut left = self.steps;
        for number in 1..=self.replans.saturating_add(1) {
            let plan = match plan(site, task, number, &story).await? {
                Ok(plan) => plan,
                Err(report) => return Ok(report),
            };
            story.failed = None;
            for (at, step) in (1..).zip(&plan.steps) {
                if left == 0 {
                    return Ok(given_up(
                        Outcome::EndTurn,
                        answer,
                        "no more steps are allowed",
                    ));
                }
                left -= 1;
                let name = format!("step-{number}-{at}");
                let mut agent = site.agent(&name, told(task, &plan, step, &story)).await?;
                let outcome = ended(&agent);
                answer = agent.run().answer();
                if is_final(&outcome) {
                    return Ok(given_up(outcome, answer, &format!("stopped at step {at}")));
                }
                let review = review(site, &mut agent, &outcome).await?;
                let notice = Notice::Judged {
                    passed: review.done,
                    why: &review.summary,
                };
                site.tell(&agent, notice);
                let title = step.title.clone();
                if !review.done {
                    story.failed = Some((title, review.summary));
                    break;
                }
                story.done.push((title, review.summary));
            }
            if story.failed.is_none() {
                return Ok(Report {
                    outcome: Outcome::EndTurn,
                    passed: true,
                    answer,
                    why: None,
                });
            }
            if let Some(outcome) = site.used_up() {
                return Ok(given_up(outcome, answer, "no room for another plan"));
            }
        }
        let (title, why) = story.failed.unwrap_or_default();
        let why = format!("no plan came to its end; the last one failed at {title:?}: {why}");
        Ok(given_up(Outcome::EndTurn, answer, &why))
    }
}

fn given_up(outcome: Outcome, answer: Option<String>, why: &str) -> Report {
    Report {
        outcome,
        passed: false,
        answer,
        why: Some(why.to_owned()),
    }
}

/// Has a plan made. The inner error is the end of the run.
async fn plan(
    site: &mut Site<'_>,
    task: &str,
    number: u32,
    story: &Story,
) -> Result<Result<Plan, Report>, PatternError> {
    let name = match number {
        1 => MAIN.to_owned(),
        _ => format!("plan-{number}"),
    };
    let mut agent = site
        .agent(&name, format!("{PLAN}\n\nThe task: {task}{story}"))
        .await?;
    let mut tries = 1;
    loop {
        let outcome = ended(&agent);
        let answer = agent.run().answer();
        if outcome != Outcome::EndTurn {
            return Ok(Err(given_up(outcome, answer, "no plan was made")));
        }
        let wrong = match form::read::<Plan>(&answer.clone().unwrap_or_default(), PLAN_SCHEMA) {
            Ok(plan) => {
                let steps: Vec<String> = plan.steps.iter().map(|s| s.title.clone()).collect();
                let steps = steps.as_slice();
                site.tell(&agent, Notice::Planned { number, steps });
                return Ok(Ok(plan));
            }
            Err(wrong) => wrong,
        };
        if tries == MAX_TRIES {
            let why = format!("no plan was made: {wrong}");
            return Ok(Err(given_up(outcome, answer, &why)));
        }
        tries += 1;
        agent.say(&format!(
            "This is no plan: {wrong}. Answer with the JSON object only."
        ))?;
        agent.go().await?;
    }
}

/// Has a step reviewed by the agent that carried it out, unless it was reviewed before.
async fn review(
    site: &Site<'_>,
    agent: &mut Agent,
    outcome: &Outcome,
) -> Result<Review, PatternError> {
    let not_done = |summary: String| Review {
        done: false,
        summary,
    };
    if *outcome != Outcome::EndTurn {
        return Ok(not_done(format!("it ended with {}", outcome.as_str())));
    }
    let mut question = REVIEW.to_owned();
    let mut said = agent.run().aside().map(str::to_owned);
    for asked in 0..=MAX_TRIES {
        match said.map(|said| form::read(&said, REVIEW_SCHEMA)) {
            Some(Ok(review)) => return Ok(review),
            Some(Err(wrong)) => {
                question = format!("{REVIEW}\n\nYour last answer was not that: {wrong}");
            }
            None => {}
        }
        if asked == MAX_TRIES || !can_be_asked(outcome) || site.used_up().is_some() {
            break;
        }
        said = agent.aside(&question).await?;
        if said.is_none() {
            break;
        }
    }
    Ok(not_done("the step could not be reviewed".to_owned()))
}

/// What the agent of a step is told.
fn told(task: &str, plan: &Plan, step: &Planned, story: &Story) -> String {
    let titles = plan.steps.iter().zip(1..);
    let titles = titles.fold(String::new(), |mut all, (step, at)| {
        // Writing to a string cannot fail.
        let _ = write!(all, "\n{at}. {}", step.title);
        all
    });
    format!(
        "Carry out one step of a plan, and nothing of the others.\n\nThe whole task: {task}\n\nThe \
         plan:{titles}{story}\n\nYour step: {}\n{}\nIt is done when: {}",
        step.title, step.task, step.done_when
    )
}

impl std::fmt::Display for Story {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.done.is_empty() {
            out.write_str("\n\nDone so far:")?;
        }
        for (title, summary) in &self.done {
            write!(out, "\n- {title}: {summary}")?;
        }
        if let Some((title, why)) = &self.failed {
            write!(
                out,
                "\n\nThe plan before this one failed at {title:?}: {why}\nPlan only what is left."
            )?;
        }
        Ok(())
    }
}

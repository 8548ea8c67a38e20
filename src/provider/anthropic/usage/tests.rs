use super::*;

/// The metered answer after these usage objects, and the warning.
fn read(objects: &[&str], ttl: Option<Ttl>) -> (Metered, Option<&'static str>) {
    let mut meter = Meter::default();
    for object in objects {
        meter.take(serde_json::from_str(object).unwrap());
    }
    let mut metered = Metered {
        model: Some("served".into()),
        ..Metered::default()
    };
    let warning = meter.read_out(&mut metered, Some("opened"), ttl);
    (metered, warning)
}

fn writes(objects: &[&str], ttl: Option<Ttl>) -> (Option<u64>, Option<u64>, bool) {
    let usage = read(objects, ttl).0.usage;
    (usage.write_5m, usage.write_1h, usage.split_inferred)
}

/// C03: totals are cumulative; the last value of every field counts.
#[test]
fn c03_running_totals_are_not_added() {
    let (metered, warning) = read(
        &[
            r#"{"input_tokens":25,"cache_read_input_tokens":100,"cache_creation_input_tokens":40,"output_tokens":1}"#,
            r#"{"output_tokens":10}"#,
            r#"{"input_tokens":25,"cache_read_input_tokens":100,"cache_creation_input_tokens":40,"output_tokens":15}"#,
        ],
        Some(Ttl::M5),
    );
    let expected = Usage {
        uncached: Some(25),
        read: Some(100),
        write_5m: Some(40),
        write_1h: Some(0),
        output: Some(15),
        split_inferred: true,
        ..Usage::default()
    };
    assert_eq!((metered.usage, warning), (expected, None));
    assert_eq!(metered.iterations, []);
}

/// C05: the total in a delta neither erases the split nor is added to it.
#[test]
fn c05_the_split_by_lifetime() {
    let start = r#"{"input_tokens":10,"cache_creation_input_tokens":10000,"cache_creation":{"ephemeral_5m_input_tokens":4000,"ephemeral_1h_input_tokens":6000},"cache_read_input_tokens":0,"output_tokens":1}"#;
    let delta = r#"{"cache_creation_input_tokens":10000,"output_tokens":100}"#;
    assert_eq!(
        writes(&[start, delta], Some(Ttl::M5)),
        (Some(4000), Some(6000), false)
    );
    assert_eq!(read(&[start, delta], None).0.usage.output, Some(100));

    let total = r#"{"input_tokens":10,"cache_creation_input_tokens":10000,"output_tokens":100}"#;
    assert_eq!(
        writes(&[total], Some(Ttl::H1)),
        (Some(0), Some(10000), true)
    );
    assert_eq!(
        writes(&[total], Some(Ttl::M5)),
        (Some(10000), Some(0), true)
    );
    // Several lifetimes: not known, said once, and never zero.
    assert_eq!(writes(&[total], None), (None, None, false));
    assert_eq!(read(&[total], None).1, Some("write_ttl_unknown"));
}

#[test]
fn a_total_that_moves_on_after_the_split() {
    let split = |m5: u64, h1: u64| {
        format!(
            r#"{{"cache_creation_input_tokens":{},"cache_creation":{{"ephemeral_5m_input_tokens":{m5},"ephemeral_1h_input_tokens":{h1}}}}}"#,
            m5 + h1
        )
    };
    let more = r#"{"cache_creation_input_tokens":900,"output_tokens":1}"#;
    assert_eq!(
        writes(&[&split(0, 600), more], None),
        (Some(0), Some(900), true)
    );
    assert_eq!(
        writes(&[&split(600, 0), more], None),
        (Some(900), Some(0), true)
    );
    assert_eq!(
        writes(&[&split(0, 0), more], Some(Ttl::H1)),
        (Some(0), Some(900), true)
    );
    assert_eq!(
        writes(&[&split(200, 400), more], Some(Ttl::M5)),
        (Some(500), Some(400), true)
    );
    assert_eq!(writes(&[&split(200, 400), more], None), (None, None, false));
    assert_eq!(
        writes(&[&split(800, 400), more], Some(Ttl::M5)),
        (None, None, false)
    );
}

/// Absent and null are unknown; a reported zero is a zero.
#[test]
fn unknown_is_not_zero() {
    let (metered, warning) = read(
        &[r#"{"input_tokens":1000,"output_tokens":100}"#],
        Some(Ttl::M5),
    );
    let expected = Usage {
        uncached: Some(1000),
        output: Some(100),
        ..Usage::default()
    };
    assert_eq!((metered.usage, warning), (expected, None));
    let null = r#"{"input_tokens":1,"cache_read_input_tokens":null,"cache_creation_input_tokens":null,"cache_creation":null,"output_tokens":1}"#;
    assert_eq!(writes(&[null], Some(Ttl::H1)), (None, None, false));
    let zero = r#"{"cache_read_input_tokens":0,"cache_creation_input_tokens":0}"#;
    assert_eq!(writes(&[zero], None), (Some(0), Some(0), false));
    assert_eq!(read(&[zero], None).0.usage.read, Some(0));
    // One half of a split says nothing of the other half, unless there is a sum.
    let half = r#"{"cache_creation":{"ephemeral_1h_input_tokens":7}}"#;
    assert_eq!(writes(&[half], None), (None, Some(7), false));
    let half =
        r#"{"cache_creation_input_tokens":9,"cache_creation":{"ephemeral_1h_input_tokens":7}}"#;
    assert_eq!(writes(&[half], None), (Some(2), Some(7), false));
}

#[test]
fn odd_shapes_hide_nothing_else() {
    let odd = r#"{"input_tokens":"12","cache_creation":[1],"server_tool_use":7,"iterations":{"a":1},"speed":3,"service_tier":["x"],"output_tokens":5,"future":{"x":[]}}"#;
    let usage = read(&[odd], None).0.usage;
    assert_eq!(
        (usage.uncached, usage.output, usage.web_searches),
        (None, Some(5), None)
    );
}

#[test]
fn modifiers_stay_as_the_start_gave_them() {
    let start = r#"{"input_tokens":1,"output_tokens":1,"service_tier":"priority","speed":"fast","inference_geo":"us","server_tool_use":{"web_search_requests":0}}"#;
    let delta = r#"{"output_tokens":9,"output_tokens_details":{"thinking_tokens":4},"server_tool_use":{"web_search_requests":3,"web_fetch_requests":1}}"#;
    let (metered, _) = read(&[start, delta], None);
    assert_eq!(
        (metered.tier, metered.speed),
        (ServiceTier::Priority, Speed::Fast)
    );
    assert_eq!(metered.geo.as_deref(), Some("us"));
    assert_eq!(metered.usage.web_searches, Some(3));
    assert_eq!(
        (metered.usage.output, metered.usage.reasoning),
        (Some(9), Some(4))
    );
    assert_eq!(
        read(&[r#"{"service_tier":"batch"}"#], None).0.tier,
        ServiceTier::Batch
    );
    assert_eq!(
        read(&[r#"{"service_tier":"new"}"#], None).0.tier,
        ServiceTier::Standard
    );
}

/// Steps are summed, since some of them are not in the totals; each keeps its own model.
#[test]
fn iterations_are_summed() {
    let start = r#"{"input_tokens":50,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":1,"iterations":[{"type":"message","input_tokens":50,"output_tokens":1}]}"#;
    let delta = r#"{"input_tokens":60,"output_tokens":30,"output_tokens_details":{"thinking_tokens":2},"iterations":[
        {"type":"compaction","input_tokens":1000,"cache_read_input_tokens":9,"cache_creation_input_tokens":0,"output_tokens":200},
        {"type":"advisor_message","model":"adviser","input_tokens":7,"cache_read_input_tokens":0,"cache_creation_input_tokens":5,"output_tokens":3},
        {"type":"message","model":"served","input_tokens":60,"cache_read_input_tokens":1,"cache_creation_input_tokens":6,"cache_creation":{"ephemeral_5m_input_tokens":2,"ephemeral_1h_input_tokens":4},"output_tokens":30}]}"#;
    let (metered, warning) = read(&[start, delta], Some(Ttl::H1));
    let expected = Usage {
        uncached: Some(1067),
        read: Some(10),
        write_5m: Some(2),
        write_1h: Some(9),
        output: Some(233),
        reasoning: Some(2),
        split_inferred: true,
        ..Usage::default()
    };
    assert_eq!((metered.usage, warning), (expected, None));
    let steps: Vec<_> = metered
        .iterations
        .iter()
        .map(|step| (step.kind.as_str(), step.model.as_deref()))
        .collect();
    // The compaction ran on the model that opened the answer; the message on the one that serves.
    let expected = [
        ("compaction", Some("opened")),
        ("advisor_message", Some("adviser")),
        ("message", None),
    ];
    assert_eq!(steps, expected);
}

/// Totals that come later than the list of steps replace the steps that they contain.
#[test]
fn a_stale_list_of_iterations_does_not_undercount() {
    let delta = r#"{"output_tokens":30}"#;
    let inside = r#"{"input_tokens":50,"output_tokens":1,"iterations":[{"type":"message","input_tokens":50,"output_tokens":1}]}"#;
    let (metered, _) = read(&[inside, delta], None);
    assert_eq!(
        (metered.usage.uncached, metered.usage.output),
        (Some(50), Some(30))
    );
    assert_eq!(metered.iterations, []);
    let outside = r#"{"input_tokens":50,"output_tokens":1,"iterations":[{"type":"compaction","input_tokens":400,"output_tokens":20},{"type":"message","input_tokens":50,"output_tokens":1}]}"#;
    let (metered, _) = read(&[outside, delta], None);
    assert_eq!(
        (metered.usage.uncached, metered.usage.output),
        (Some(450), Some(50))
    );
    let kinds: Vec<_> = metered
        .iterations
        .iter()
        .map(|step| step.kind.as_str())
        .collect();
    assert_eq!(kinds, ["compaction", "message"]);
}

#[test]
fn too_many_iterations_leave_the_usage_unknown() {
    let steps =
        vec![r#"{"type":"message","input_tokens":1,"output_tokens":1}"#; MAX_ITERATIONS + 1];
    let object = format!(
        r#"{{"input_tokens":1,"output_tokens":1,"iterations":[{}]}}"#,
        steps.join(",")
    );
    let (metered, warning) = read(&[&object], None);
    assert_eq!(
        (metered.usage, warning),
        (Usage::default(), Some("too_many_iterations"))
    );
}

-- Writes with the lifetimes of OpenAI's cache. A provider has one pair of lifetimes or the other, so
-- that of a request one pair is NULL.

ALTER TABLE {db}.{local:turns} {on_cluster}
    ADD COLUMN IF NOT EXISTS write_30m Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Input tokens written for thirty minutes' AFTER write_1h,
    ADD COLUMN IF NOT EXISTS write_12h Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Input tokens written for twelve hours' AFTER write_30m;

-- cluster
ALTER TABLE {db}.turns_raw {on_cluster}
    ADD COLUMN IF NOT EXISTS write_30m Nullable(UInt64) COMMENT 'Input tokens written for thirty minutes' AFTER write_1h,
    ADD COLUMN IF NOT EXISTS write_12h Nullable(UInt64) COMMENT 'Input tokens written for twelve hours' AFTER write_30m;

ALTER TABLE {db}.{local:turns_by_hour} {on_cluster}
    ADD COLUMN IF NOT EXISTS write_30m Nullable(UInt128) CODEC(ZSTD(1)) COMMENT 'Input tokens written for thirty minutes' AFTER write_1h,
    ADD COLUMN IF NOT EXISTS write_12h Nullable(UInt128) CODEC(ZSTD(1)) COMMENT 'Input tokens written for twelve hours' AFTER write_30m;

-- cluster
ALTER TABLE {db}.turns_by_hour_raw {on_cluster}
    ADD COLUMN IF NOT EXISTS write_30m Nullable(UInt128) COMMENT 'Input tokens written for thirty minutes' AFTER write_1h,
    ADD COLUMN IF NOT EXISTS write_12h Nullable(UInt128) COMMENT 'Input tokens written for twelve hours' AFTER write_30m;

ALTER TABLE {db}.turns_into_hours {on_cluster} MODIFY QUERY
WITH
    t.outcome NOT IN ('refused', 'client_error') AS forwarded,
    t.kind = 'turn' AS is_turn,
    is_turn AND t.verdict IS NOT NULL AS is_judged,
    is_judged AND (ifNull(t.verdict, '') IN ('partial', 'miss') OR ifNull(t.lost_tokens, 0) > 0) AS is_break,
    isNull(t.cost_pico) AND isNull(t.uncached) AND isNull(t.read) AND isNull(t.write_5m)
        AND isNull(t.write_1h) AND isNull(t.write_30m) AND isNull(t.write_12h) AND isNull(t.output) AS nothing_told,
    NOT (nothing_told AND (t.outcome = 'upstream_error' AND ifNull(t.status, 0) >= 400 OR NOT forwarded)) AS billable,
    if(t.kind = 'keep_warm', toNullable(0), t.cost_no_cache_pico) AS without_cache,
    toUInt128(t.write_5m) + t.write_1h AS minutes,
    toUInt128(t.write_30m) + t.write_12h AS half_hours,
    toUInt128(t.uncached) + t.read + coalesce(minutes + half_hours, minutes, half_hours) AS whole
SELECT
    toStartOfHour(toDateTime(t.started, 'UTC')) AS hour,
    t.app AS app,
    coalesce(t.model_served, t.model_requested) AS model,
    t.upstream AS upstream,
    t.credential AS credential,
    t.kind AS kind,
    t.outcome AS outcome,
    t.batch AS batch,
    count() AS requests,
    countIf(is_turn AND t.attempt <= 1 AND forwarded) AS turns,
    countIf(is_turn AND t.outcome NOT IN ('ok', 'client_abort')) AS errors,
    countIf(is_judged) AS judged,
    countIf(is_break) AS breaks,
    countIf(is_break AND isNull(t.lost_pico)) AS breaks_unpriced,
    sumIf(toUInt128(ifNull(t.lost_tokens, 0)), is_break) AS lost_tokens,
    sumIf(toUInt128(ifNull(t.lost_pico, 0)), is_break) AS lost_pico,
    countIf(billable AND isNull(t.cost_pico)) AS unpriced,
    countIf(billable AND NOT t.usage_complete) AS incomplete,
    countIf(t.usage_estimated) AS estimated,
    sum(toUInt128(t.uncached)) AS uncached,
    sum(toUInt128(t.read)) AS read,
    sum(toUInt128(t.write_5m)) AS write_5m,
    sum(toUInt128(t.write_1h)) AS write_1h,
    sum(toUInt128(t.write_30m)) AS write_30m,
    sum(toUInt128(t.write_12h)) AS write_12h,
    sum(toUInt128(t.output)) AS output,
    ifNull(sum(whole), 0) AS prompt,
    ifNull(sumIf(toUInt128(t.read), isNotNull(whole)), 0) AS prompt_read,
    sum(toUInt128(t.cost_pico)) AS cost_pico,
    sumIf(toUInt128(t.cost_pico), isNotNull(without_cache)) AS compared_pico,
    sumIf(toUInt128(without_cache), isNotNull(t.cost_pico)) AS cost_no_cache_pico,
    quantilesTDigestState(0.5, 0.9, 0.95, 0.99)(t.duration_us) AS duration_us,
    quantilesTDigestState(0.5, 0.9, 0.95, 0.99)(t.first_token_us) AS first_token_us,
    quantilesTDigestState(0.5, 0.9, 0.95, 0.99)(t.overhead_us) AS overhead_us
FROM {db}.{local:turns} AS t
WHERE t.kind IN ('turn', 'keep_warm')
GROUP BY hour, app, model, upstream, credential, kind, outcome, batch;

CREATE OR REPLACE VIEW {db}.turns {on_cluster} AS
SELECT * EXCEPT (batch), started_ms FROM {db}.turns_raw FINAL
COMMENT 'Requests, each once';

CREATE OR REPLACE VIEW {db}.turns_by_hour {on_cluster} AS
SELECT * EXCEPT (batch) FROM {db}.turns_by_hour_raw FINAL
COMMENT 'Sums by hour, each delivery once: several rows an hour and group, to be summed up'

-- Sums by hour for dashboards. A row is the share of one delivery in one group of one hour, so that
-- a delivery that comes again, however late and whatever the server remembers of it, is the same
-- row again and no addition. The rules of what counts are those of `store::totals`.

CREATE TABLE IF NOT EXISTS {db}.{local:turns_by_hour} {on_cluster}
(
    hour               DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Hour of the start',
    app                LowCardinality(Nullable(String)) COMMENT 'Application',
    model              LowCardinality(Nullable(String)) COMMENT 'Model that answered; else the one asked for',
    upstream           LowCardinality(String) COMMENT 'Name of the upstream',
    credential         LowCardinality(Nullable(String)) COMMENT 'Keyed hash of the credential',
    kind               LowCardinality(String) COMMENT 'turn or keep_warm',
    outcome            LowCardinality(String) COMMENT 'How the requests ended',
    batch              UInt64 CODEC(ZSTD(1)) COMMENT 'The delivery',
    requests           UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Requests, retries and refused ones included',
    turns              UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Turns: requests that were given on, each with its retries once',
    errors             UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Requests that went wrong or were refused',
    judged             UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Turns with a verdict',
    breaks             UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Turns of which less was read than was there',
    breaks_unpriced    UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Breaks whose loss in money is not known',
    lost_tokens        UInt128 CODEC(ZSTD(1)) COMMENT 'Tokens that were there and were not read, as far as known',
    lost_pico          UInt128 CODEC(ZSTD(1)) COMMENT 'Sum of the known losses in pico-USD',
    unpriced           UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Requests that may have been charged for and have no known cost',
    incomplete         UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Requests that may have been charged for and whose final usage was not seen',
    estimated          UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Requests with estimated usage',
    uncached           Nullable(UInt128) CODEC(ZSTD(1)) COMMENT 'Input tokens neither read nor written; NULL: no request said',
    read               Nullable(UInt128) CODEC(ZSTD(1)) COMMENT 'Input tokens read from the cache',
    write_5m           Nullable(UInt128) CODEC(ZSTD(1)) COMMENT 'Input tokens written for five minutes',
    write_1h           Nullable(UInt128) CODEC(ZSTD(1)) COMMENT 'Input tokens written for one hour',
    output             Nullable(UInt128) CODEC(ZSTD(1)) COMMENT 'Output tokens, reasoning included',
    prompt             UInt128 CODEC(ZSTD(1)) COMMENT 'Whole prompts, over the requests that told all kinds',
    prompt_read        UInt128 CODEC(ZSTD(1)) COMMENT 'What of them was read: the hit ratio is prompt_read / prompt',
    cost_pico          Nullable(UInt128) CODEC(ZSTD(1)) COMMENT 'Sum of the known costs in pico-USD',
    compared_pico      Nullable(UInt128) CODEC(ZSTD(1)) COMMENT 'The same, over the requests whose cost without a cache is known too',
    cost_no_cache_pico Nullable(UInt128) CODEC(ZSTD(1)) COMMENT 'What those would have cost without a cache; the saving is this less compared_pico',
    duration_us        AggregateFunction(quantilesTDigest(0.5, 0.9, 0.95, 0.99), UInt64) COMMENT 'Durations; read with quantilesTDigestMerge',
    first_token_us     AggregateFunction(quantilesTDigest(0.5, 0.9, 0.95, 0.99), Nullable(UInt64)) COMMENT 'Times to the first content; read with quantilesTDigestMerge',
    overhead_us        AggregateFunction(quantilesTDigest(0.5, 0.9, 0.95, 0.99), Nullable(UInt64)) COMMENT 'What the gateway added; read with quantilesTDigestMerge'
)
ENGINE = {engine:turns_by_hour}
PARTITION BY toYYYYMM(hour)
ORDER BY (hour, app, model, upstream, credential, kind, outcome, batch)
TTL {ttl:hour}
SETTINGS allow_nullable_key = 1, {dedup}
COMMENT 'Sums by hour as delivered; ask the view turns_by_hour';

-- cluster
CREATE TABLE IF NOT EXISTS {db}.turns_by_hour_raw {on_cluster} AS {db}.turns_by_hour_local
ENGINE = {distributed:turns_by_hour_local,rand()};

CREATE MATERIALIZED VIEW IF NOT EXISTS {db}.turns_into_hours {on_cluster} TO {db}.{local:turns_by_hour} AS
WITH
    t.outcome NOT IN ('refused', 'client_error') AS forwarded,
    t.kind = 'turn' AS is_turn,
    is_turn AND t.verdict IS NOT NULL AS is_judged,
    is_judged AND (ifNull(t.verdict, '') IN ('partial', 'miss') OR ifNull(t.lost_tokens, 0) > 0) AS is_break,
    isNull(t.cost_pico) AND isNull(t.uncached) AND isNull(t.read) AND isNull(t.write_5m)
        AND isNull(t.write_1h) AND isNull(t.output) AS nothing_told,
    NOT (nothing_told AND (t.outcome = 'upstream_error' AND ifNull(t.status, 0) >= 400 OR NOT forwarded)) AS billable,
    if(t.kind = 'keep_warm', toNullable(0), t.cost_no_cache_pico) AS without_cache,
    toUInt128(t.uncached) + t.read + t.write_5m + t.write_1h AS whole
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

CREATE VIEW IF NOT EXISTS {db}.turns_by_hour {on_cluster} AS
SELECT * EXCEPT (batch) FROM {db}.turns_by_hour_raw FINAL
COMMENT 'Sums by hour, each delivery once: several rows an hour and group, to be summed up';

-- Records, one row each. Where `local` is told, the rows lie: on a single node in the table that is
-- written to (`turns_raw`), in a cluster in `turns_local` behind a distributed `turns_raw`. What is
-- asked are the views: each id once, however often it was delivered.
--
-- Times are UTC with milliseconds, durations microseconds unless the name says otherwise, money is
-- pico-USD (1e-12 USD), NULL is "unknown".

CREATE TABLE IF NOT EXISTS {db}.{local:turns} {on_cluster}
(
    id                   UUID CODEC(ZSTD(1)) COMMENT 'UUIDv7, fixed when the request was accepted',
    kind                 LowCardinality(String) COMMENT 'What it was for; only turn is a turn of the run',
    run_id               String CODEC(ZSTD(1)) COMMENT 'The run it belongs to',
    run_source           LowCardinality(String) COMMENT 'Where the name of the run came from',
    thread_id            String CODEC(ZSTD(1)) COMMENT 'The thread inside the run',
    parent_thread        Nullable(String) CODEC(ZSTD(1)) COMMENT 'The thread that started this one',
    agent                Nullable(String) CODEC(ZSTD(1)) COMMENT 'The name of the agent, by the client',
    parent_agent         Nullable(String) CODEC(ZSTD(1)) COMMENT 'The agent that started it, by the client',
    turn                 UInt32 CODEC(T64, ZSTD(1)) COMMENT '1-based number in the thread; 0: not a turn',
    attempt              UInt32 CODEC(T64, ZSTD(1)) COMMENT 'Above 1: a retry of the same turn by the client',
    app                  LowCardinality(Nullable(String)) COMMENT 'Application, from a label or header',
    client               LowCardinality(Nullable(String)) COMMENT 'Client program and version',
    upstream             LowCardinality(String) COMMENT 'Name of the upstream',
    credential           LowCardinality(Nullable(String)) COMMENT 'Keyed hash of the credential',
    method               LowCardinality(String) COMMENT 'HTTP method',
    path                 LowCardinality(String) COMMENT 'Path without query',
    model_requested      LowCardinality(Nullable(String)) COMMENT 'Model asked for',
    model_served         LowCardinality(Nullable(String)) COMMENT 'Model that answered',
    started              DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Start; a request belongs to the day of its start',
    started_ms           Int64 ALIAS toUnixTimestamp64Milli(started) COMMENT 'The same as milliseconds since 1970',
    overhead_us          Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'From the last byte of the request until it went upstream',
    head_us              Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'From start until the response head',
    first_token_us       Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'From start until the first content',
    duration_us          UInt64 CODEC(T64, ZSTD(1)) COMMENT 'From start until the end',
    status               Nullable(UInt16) CODEC(T64, ZSTD(1)) COMMENT 'HTTP status that the client was given',
    outcome              LowCardinality(String) COMMENT 'How it ended',
    stop_reason          LowCardinality(Nullable(String)) COMMENT 'Why the model stopped',
    error_type           LowCardinality(Nullable(String)) COMMENT 'Error type of the provider, or our own word',
    error_message        Nullable(String) CODEC(ZSTD(1)) COMMENT 'Message of that error, cut',
    streamed             Bool COMMENT 'Whether a stream was asked for',
    uncached             Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Input tokens neither read from nor written to the cache',
    read                 Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Input tokens read from the cache',
    write_5m             Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Input tokens written for five minutes',
    write_1h             Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Input tokens written for one hour',
    output               Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Output tokens, reasoning included',
    reasoning            Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Part of output',
    web_searches         Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Web searches that are charged for',
    split_inferred       Bool COMMENT 'The split of writes by lifetime is inferred',
    usage_complete       Bool COMMENT 'The final usage was seen; else it is a lower bound or an estimate',
    usage_estimated      Bool COMMENT 'Some of the usage was estimated from delivered bytes',
    cost_pico            Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Cost in pico-USD',
    cost_no_cache_pico   Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'The same tokens without any cache, in pico-USD',
    price_version        LowCardinality(Nullable(String)) COMMENT 'Version of the price data, or why there is no price',
    inspection           LowCardinality(String) COMMENT 'Whether the body was read',
    inspection_reason    LowCardinality(Nullable(String)) COMMENT 'Why it was not',
    request_bytes        UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Body as the client sent it',
    sent_bytes           UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Body as it went upstream',
    response_bytes       UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Body of the answer as delivered',
    blocks               UInt32 CODEC(T64, ZSTD(1)) COMMENT 'Blocks of the request',
    messages             UInt32 CODEC(T64, ZSTD(1)) COMMENT 'Messages of the request',
    tools                UInt32 CODEC(T64, ZSTD(1)) COMMENT 'Tool definitions of the request',
    markers_client       UInt32 CODEC(T64, ZSTD(1)) COMMENT 'Breakpoints of the client',
    markers_added        String CODEC(ZSTD(1)) COMMENT 'Breakpoints added: JSON [{path, ttl, offset}]',
    dry_run              Bool COMMENT 'They were only planned',
    root                 Nullable(String) CODEC(ZSTD(1)) COMMENT 'Keyed hash of tools and system',
    chain                Nullable(String) CODEC(ZSTD(1)) COMMENT 'Keyed chain hash at the last block',
    response_id          Nullable(String) CODEC(ZSTD(1)) COMMENT 'Id of the answer, by the provider',
    request_id           Nullable(String) CODEC(ZSTD(1)) COMMENT 'Id of the request, by the provider',
    native_diagnosis     Nullable(String) CODEC(ZSTD(1)) COMMENT 'What the provider says of a cache miss',
    warnings             Array(String) CODEC(ZSTD(1)) COMMENT 'Stable words, some with a detail after a colon',
    verdict              LowCardinality(Nullable(String)) COMMENT 'What became of the cache; NULL: not judged',
    verdict_reason       LowCardinality(Nullable(String)) COMMENT 'Why',
    lost_tokens          Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Tokens that were there and were not read',
    lost_pico            Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'What they cost more than reading them, in pico-USD',
    what                 LowCardinality(Nullable(String)) COMMENT 'What happened at the first changed place',
    whose                LowCardinality(Nullable(String)) COMMENT 'Whose doing the loss is',
    first_changed        Nullable(String) CODEC(ZSTD(1)) COMMENT 'JSON path of the first changed place',
    first_changed_offset Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Offset inside the value there',
    unjudged             LowCardinality(Nullable(String)) COMMENT 'Why there is no verdict',
    policy               LowCardinality(Nullable(String)) COMMENT 'The policy that decided about breakpoints',
    expected_read        Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Tokens expected to be read',
    read_of              Nullable(UUID) CODEC(ZSTD(1)) COMMENT 'The turn that wrote what was read',
    premium_pico         Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'What the writes cost more than plain input, in pico-USD',
    duplicate_of         Nullable(UUID) CODEC(ZSTD(1)) COMMENT 'The turn that wrote the same at the same time',
    duplicate_tokens     Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Tokens that both wrote',
    duplicate_pico       Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'What reading them would have saved, in pico-USD',
    native_agrees        Nullable(Bool) COMMENT 'The diagnosis of the provider says the same as the verdict',
    helper               LowCardinality(Nullable(String)) COMMENT 'The opt-in helper that acted',
    helper_tokens        Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Tokens read thanks to it',
    helper_pico          Nullable(Int64) CODEC(T64, ZSTD(1)) COMMENT 'What it saved in pico-USD; negative: it cost more',
    verdict_detail       Nullable(String) CODEC(ZSTD(1)) COMMENT 'The verdict for people, without content',
    excerpt_before       Nullable(String) CODEC(ZSTD(1)) COMMENT 'Content around the change before; NULL unless captured',
    excerpt_after        Nullable(String) CODEC(ZSTD(1)) COMMENT 'Content around the change now; NULL unless captured',
    trail                Nullable(String) CODEC(ZSTD(1)) COMMENT 'Keyed hashes, kinds and sizes of the blocks, as bytes',
    guard                Nullable(String) CODEC(ZSTD(1)) COMMENT 'Loops and caps: JSON; NULL: nothing to say',
    traceparent          Nullable(String) CODEC(ZSTD(1)) COMMENT 'W3C trace context that the client sent',
    batch                UInt64 CODEC(ZSTD(1)) COMMENT 'The delivery it came with; see turns_by_hour',
    INDEX by_run         run_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_id          id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_read_of     read_of TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_app         app TYPE set(64) GRANULARITY 4,
    INDEX by_loss        lost_pico TYPE minmax GRANULARITY 1
)
ENGINE = {engine:turns}
PARTITION BY toYYYYMM(started)
ORDER BY (toStartOfHour(started), run_id, started, id)
TTL {ttl:started}
SETTINGS {dedup}
COMMENT 'Requests as delivered; ask the view turns';

CREATE TABLE IF NOT EXISTS {db}.{local:tool_calls} {on_cluster}
(
    turn_id      UUID CODEC(ZSTD(1)) COMMENT 'The turn whose answer asked for it',
    run_id       String CODEC(ZSTD(1)) COMMENT 'Run',
    thread_id    String CODEC(ZSTD(1)) COMMENT 'Thread',
    call_id      String CODEC(ZSTD(1)) COMMENT 'Id of the call, by the provider',
    name         LowCardinality(String) COMMENT 'The tool',
    input_hash   String CODEC(ZSTD(1)) COMMENT 'Keyed hash of the input',
    input_bytes  UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Size of the input',
    asked        DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)) COMMENT 'End of the answer that asked for it',
    asked_ms     Int64 ALIAS toUnixTimestamp64Milli(asked) COMMENT 'The same as milliseconds since 1970',
    status       LowCardinality(String) COMMENT 'How it stands',
    latency_ms   Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'From the end of the answer to the request with the result, in milliseconds',
    result_bytes Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Size of the result',
    wrong        LowCardinality(Nullable(String)) COMMENT 'What is wrong with the call itself',
    retries      UInt32 CODEC(T64, ZSTD(1)) COMMENT 'How often the same call had failed right before',
    version      UInt8 COMMENT 'Of several rows of a call the highest counts: 0 pending, 1 incomplete, 2 final',
    INDEX by_run  run_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_turn turn_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = {engine:tool_calls,version}
PARTITION BY toYYYYMM(asked)
ORDER BY (toStartOfHour(asked), run_id, asked, turn_id, call_id)
TTL {ttl:asked}
SETTINGS {dedup}
COMMENT 'Tool calls as delivered; ask the view tool_calls';

CREATE TABLE IF NOT EXISTS {db}.{local:events} {on_cluster}
(
    id          UUID CODEC(ZSTD(1)) COMMENT 'UUIDv7, fixed when it happened',
    at          DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When it happened',
    at_ms       Int64 ALIAS toUnixTimestamp64Milli(at) COMMENT 'The same as milliseconds since 1970',
    kind        LowCardinality(String) COMMENT 'What kind of thing happened',
    name        LowCardinality(String) COMMENT 'The detector, the cap, or the name of the alert',
    run_id      String CODEC(ZSTD(1)) COMMENT 'Run; empty: it concerns none',
    thread_id   String CODEC(ZSTD(1)) COMMENT 'Thread; empty: it concerns none',
    turn_id     Nullable(UUID) CODEC(ZSTD(1)) COMMENT 'The request in which it happened',
    app         LowCardinality(Nullable(String)) COMMENT 'Application',
    scope       LowCardinality(String) COMMENT 'Scope of a cap',
    action      LowCardinality(String) COMMENT 'What was done; empty: nothing',
    value       Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Count of a loop; what of a cap was used, in its unit',
    limit_value Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'Threshold or limit',
    level       Nullable(UInt32) CODEC(T64, ZSTD(1)) COMMENT 'Percent of a cap',
    pico        Nullable(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'What a loop has cost so far, in pico-USD',
    tools       Array(LowCardinality(String)) COMMENT 'Tools of a loop, names only',
    INDEX by_run run_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = {engine:events}
PARTITION BY toYYYYMM(at)
ORDER BY (kind, at, id)
TTL {ttl:at}
SETTINGS {dedup}
COMMENT 'Events as delivered; ask the view events';

-- cluster
CREATE TABLE IF NOT EXISTS {db}.turns_raw {on_cluster} AS {db}.turns_local
ENGINE = {distributed:turns_local,cityHash64(run_id)};

-- cluster
CREATE TABLE IF NOT EXISTS {db}.tool_calls_raw {on_cluster} AS {db}.tool_calls_local
ENGINE = {distributed:tool_calls_local,cityHash64(run_id)};

-- cluster
CREATE TABLE IF NOT EXISTS {db}.events_raw {on_cluster} AS {db}.events_local
ENGINE = {distributed:events_local,cityHash64(run_id)};

CREATE VIEW IF NOT EXISTS {db}.turns {on_cluster} AS
SELECT * EXCEPT (batch), started_ms FROM {db}.turns_raw FINAL
COMMENT 'Requests, each once';

CREATE VIEW IF NOT EXISTS {db}.tool_calls {on_cluster} AS
SELECT * EXCEPT (version), asked_ms FROM {db}.tool_calls_raw FINAL
COMMENT 'Tool calls, each once, as they stand now';

CREATE VIEW IF NOT EXISTS {db}.events {on_cluster} AS
SELECT *, at_ms FROM {db}.events_raw FINAL
COMMENT 'Events, each once';

"""Every knob once: type, default, unit, sentence. Pure: read by mind, handed down, no instance here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "ActionSettings",
    "BudgetSettings",
    "BusSettings",
    "ClockSettings",
    "ConsolidateSettings",
    "ContextSettings",
    "DeadLetterRouterSettings",
    "DebugSettings",
    "Endpoint",
    "GatewaySettings",
    "InboxSettings",
    "InspectorSettings",
    "InternalizerSettings",
    "LogSettings",
    "LoopSettings",
    "MetricsSettings",
    "ModelSettings",
    "PreprocessorSettings",
    "RhythmSettings",
    "RoleSettings",
    "Settings",
    "StaticPaths",
    "StaticSettings",
    "StreamSettings",
    "TrustSettings",
]


_HOURS = r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class BusSettings(_Section):
    """How files become deliveries."""

    durability: Literal["full", "process"] = "full"
    """full: an ack means it survives a power cut; process: it survives a killed process."""
    watcher: Literal["auto", "inotify", "polling"] = "auto"
    """auto: notifications where they work, else polling."""
    poll_sec: Annotated[float, Field(gt=0)] = 1.0
    """Seconds between listings when polling."""
    reconcile_max_sec: Annotated[float, Field(gt=0)] = 30.0
    """Slowest pace of the listing that finds what notifications missed."""
    settle_sec: Annotated[float, Field(ge=0)] = 0.5
    """A file nobody closed is read once its size and time have stood still this long."""
    settle_timeout_sec: Annotated[float, Field(ge=0)] = 10.0
    """A file that is no JSON is set aside once it has stood still this long."""
    max_attempts: Annotated[int, Field(ge=1)] = 5
    """Failures (or deaths of the process) after which an input is set aside."""
    backoff_sec: Annotated[float, Field(ge=0)] = 1.0
    """First pause before a retry; doubles each time."""
    backoff_max_sec: Annotated[float, Field(gt=0)] = 300.0
    """Longest pause before a retry."""
    window: Annotated[int, Field(ge=1)] = 512
    """Deliveries a node holds in memory; the rest waits on disk."""
    checkpoint_sec: Annotated[float, Field(gt=0)] = 5.0
    """With durability full: seconds between the syncs after which commits are forgotten."""


class InboxSettings(_Section):
    """What may be dropped."""

    max_bytes: Annotated[int, Field(ge=1)] = 1_048_576
    """Largest file that is read."""
    max_depth: Annotated[int, Field(ge=1)] = 64
    """Deepest nesting of a JSON document."""
    dedupe_hours: Annotated[float, Field(ge=0)] = 24.0
    """How long the (source, id) pair of a CloudEvent is remembered."""


class PreprocessorSettings(_Section):
    """How quick messages of one session are gathered."""

    debounce_sec: Annotated[float, Field(ge=0)] = 2.0
    """Quiet time after which a session's messages are handed on; 0 for the first one after a quiet spell."""
    debounce_max_sec: Annotated[float, Field(ge=0)] = 10.0
    """Longest time a message is held."""


class InternalizerSettings(_Section):
    """What the internalizer is given."""

    batch_tokens: Annotated[int, Field(ge=1)] = 4000
    """Waiting events told in one passage, in tokens of their text."""
    tail_tokens: Annotated[int, Field(ge=0)] = 800
    """The end of now.md that stands in each prompt."""
    state_tokens: Annotated[int, Field(ge=0)] = 200
    """state.md in each prompt; longer pages are excerpted."""
    memory_tokens: Annotated[int, Field(ge=0)] = 800
    """Memories and past passages that matter, in each prompt."""
    event_max_tokens: Annotated[int, Field(ge=16)] = 2000
    """A longer event is shown as head, tail and a pointer to its file."""


class StreamSettings(_Section):
    """How now.md is kept short without a model: what leaves it goes to stream/archive/, unaltered."""

    max_bytes: Annotated[int, Field(ge=1024)] = 65_536
    """now.md never grows past it, save for one passage that is larger by itself."""
    keep_share: Annotated[float, Field(ge=0, le=0.9)] = 0.25
    """Of max_bytes, how much of its end stays when it is shortened."""
    keep_passages: Annotated[int, Field(ge=0)] = 6
    """So many last passages stay at the end of a day, as far as keep_share allows."""
    day_ends_at: Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")] = "02:00"
    """Local time at which a mind's day ends; passages of earlier days leave now.md within the hour after."""


class ConsolidateSettings(_Section):
    """When and how the memory_consolidator turns passages into memories."""

    rules: tuple[str, ...] = ("evening", "midnight")
    """Rules of the rhythm at which it runs, if anything new was lived through."""
    threshold_bytes: Annotated[int, Field(ge=512)] = 32_768
    """It also runs when so much of now.md was never consolidated; best well below stream.max_bytes."""
    max_shrink: Annotated[float, Field(ge=0, le=1)] = 0.5
    """A page that would lose a larger share of its length stays as it is."""
    span_tokens: Annotated[int, Field(ge=200)] = 12_000
    """Passages shown at once, oldest first; the rest waits for the next run."""
    pages_tokens: Annotated[int, Field(ge=0)] = 6000
    """Memory pages shown whole, those that matter most first; an unseen page is only added to."""


class ContextSettings(_Section):
    """How prompts are made; what each task type may take stands in config/task_types.yaml."""

    mode: Literal["single", "shadow", "canary", "dual"] = "dual"
    """dual: static truths and what is retrieved. single: everything, newest first, as before; shadow makes
    and audits both and sends the single one; canary sends the dual one for a share of the traces."""
    canary_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """With canary: the share of traces that get the dual prompt."""
    window_share: Annotated[float, Field(gt=0, le=1)] = 0.7
    """Of the model's window, what a prompt may take."""
    static_tokens: Annotated[int, Field(ge=100)] = 2000
    """Static truths in one prompt, in the profile full."""
    lean_tokens: Annotated[int, Field(ge=100)] = 900
    """Static truths in one prompt, in the profile lean."""
    persona_tokens: Annotated[int, Field(ge=0)] = 400
    """SOUL.md in each prompt; paragraphs over it are left out."""
    core_alert_tokens: Annotated[int, Field(ge=0)] = 300
    """Unresolved errors and alerts of severity core, in every prompt, never trimmed."""
    single_tokens: Annotated[int, Field(ge=100)] = 10_000
    """Where "everything" ends: for single, and for what is told as saved."""
    ties: Literal["rules", "fast"] = "rules"
    """A task that fits several types: the first of them, or one question to the role fast."""


class RhythmSettings(_Section):
    """Time as a sense; the rules stand in config/rhythm.yaml."""

    idle: Literal["note", "perceive", "skip"] = "note"
    """A slot before which nothing has happened: noted without a model call, perceived all the same, or not
    even noted."""
    day_ends_at: Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")] = "02:00"
    """When the mind's day ends, by the clock on the wall: what comes earlier looks back on the day before."""


class LoopSettings(_Section):
    """What keeps a mind from exciting itself."""

    max_hops: Annotated[int, Field(ge=0)] = 3
    """Past this many passes from action back to event a trace is perceived, not acted on."""
    own_names: tuple[str, ...] = ()
    """Names she goes by elsewhere, beside `mind` and `self`: her words under one of them come from nobody."""
    max_echoes: Annotated[int, Field(ge=0)] = 2
    """So many echoes of her own words in a row are perceived; the next one opens the source's circuit."""
    echo_hours: Annotated[float, Field(ge=0)] = 24.0
    """How long her own words are known when they come back; 0 = echoes are not looked for."""
    window_sec: Annotated[float, Field(gt=0)] = 600.0
    """Echoes and turns further apart than this are no loop."""
    max_turns: Annotated[int, Field(ge=1)] = 30
    """So often she acts for one source within the window while nobody else speaks; then its circuit opens."""
    circuit_sec: Annotated[float, Field(gt=0)] = 60.0
    """First pause of an open circuit; doubles each time it opens again."""
    circuit_max_sec: Annotated[float, Field(gt=0)] = 3600.0
    """Longest pause of an open circuit."""
    fold_after: Annotated[int, Field(ge=1)] = 3
    """So many near-identical events of one source are perceived one by one; never counts for messages."""
    fold_window_sec: Annotated[float, Field(ge=0)] = 600.0
    """The further ones are told as one event after this time; doubles while they go on; 0 = no folding."""
    fold_max_sec: Annotated[float, Field(gt=0)] = 3600.0
    """Longest time over which near-identical events are folded."""
    rumination_hours: Annotated[float, Field(ge=0)] = 6.0
    """A passage that says again what two others of this time said is not written a third time; 0 = it is."""
    worry_hours: Annotated[float, Field(gt=0)] = 24.0
    """An open worry that has not come back for so long leaves state.md."""


class ActionSettings(_Section):
    """How actions run."""

    timeout_sec: Annotated[float, Field(gt=0)] = 60.0
    """Longest run of a tool that leaves the data directory."""
    max_per_passage: Annotated[int, Field(ge=1)] = 16
    """More actions than this in one answer make it unusable."""


class TrustSettings(_Section):
    """Who is believed how far: names of senders, sources or channels; others are `unknown`."""

    owner: tuple[str, ...] = ("owner",)
    """The people whose mind this is."""
    known: tuple[str, ...] = ()
    """People and programs she may write to of her own accord."""
    web: tuple[str, ...] = ()
    """Text of strangers, feeds and pages: believed least, in whatever company it comes."""


class BudgetSettings(_Section):
    """What may be spent."""

    tokens_per_day: Annotated[int, Field(ge=0)] = 1_000_000
    """Prompt and answer tokens of one local day; 0 = no limit."""
    reserved_for_people: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Share of the day, of tokens and money alike, that only messages from people may use."""
    money_per_day: Annotated[float, Field(ge=0)] = 0.0
    """Money of one local day, in the currency of the roles' prices; 0 = no limit."""
    per_rule: dict[str, Annotated[int, Field(ge=0)]] = {}
    """Rhythm rule: tokens of one local day for what its events lead to, e.g. `{hourly: 50000}`; 0 = no
    limit."""
    quiet_hours: Annotated[str, Field(pattern=_HOURS)] | None = None
    """Local hours, e.g. "23:00-07:00", in which only messages from people are thought about; the rest waits
    until they are over."""


class Endpoint(_Section):
    """Where a model answers."""

    base_url: str | None = None
    """OpenAI-compatible; None = OPENAI_BASE_URL, else the SDK's own."""
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; the key itself never stands in a file."""


class RoleSettings(Endpoint):
    """One role of the model."""

    model: str
    """The endpoint's name for it."""
    window: Annotated[int, Field(ge=1024)] = 128_000
    """Context window in tokens."""
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    """None = the endpoint's own limit."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """None = the endpoint's own."""
    timeout_sec: Annotated[float, Field(gt=0)] | None = None
    """None = model.timeout_sec."""
    price_in: Annotated[float, Field(ge=0)] = 0.0
    """Money per million prompt tokens."""
    price_cached: Annotated[float, Field(ge=0)] | None = None
    """Money per million prompt tokens read from the endpoint's cache; None = price_in."""
    price_out: Annotated[float, Field(ge=0)] = 0.0
    """Money per million answer tokens."""


class ModelSettings(_Section):
    """Which model answers for which role."""

    mode: Literal["auto", "online", "offline"] = "auto"
    """auto: offline only if neither a key nor any base URL is set."""
    quality: RoleSettings = RoleSettings(model="gpt-4.1-mini")
    """Internalizer; every unset role falls back to it."""
    fast: RoleSettings | None = None
    """Externalizer."""
    multimodal: RoleSettings | None = None
    """Images; unset = an image is named, not seen."""
    embedding: RoleSettings | None = None
    """Vectors of texts."""
    timeout_sec: Annotated[float, Field(gt=0)] = 120.0
    """Longest wait for a whole answer, and for the next piece of a streamed one; a stream ends after five
    times this, at least 600 s."""
    stream: Literal["auto", "on", "off"] = "auto"
    """auto: prose is streamed, JSON is not."""
    structured: Literal["auto", "json_schema", "tool", "json_object", "plain"] = "auto"
    """How JSON is asked for; auto tries them in this order and remembers what the endpoint takes."""
    retries: Annotated[int, Field(ge=0)] = 2
    """Repeats of one call inside the same attempt, for errors that pass at once."""
    breaker_failures: Annotated[int, Field(ge=1)] = 3
    """Failed calls in a row that open the breaker."""
    breaker_sec: Annotated[float, Field(gt=0)] = 30.0
    """First pause of an open breaker; doubles up to breaker_max_sec."""
    breaker_max_sec: Annotated[float, Field(gt=0)] = 900.0
    """Longest pause of an open breaker."""


class GatewaySettings(_Section):
    """The memory gateway: HTTP."""

    enabled: bool = True
    """Serve it from the daemon."""
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Where it listens; anything but loopback requires a token."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 9120
    """0 takes any free port."""
    token_env: str = "KGAMMA_GATEWAY_TOKEN"
    """The environment variable that holds the token; where it is set, every request must carry it."""
    max_bytes: Annotated[int, Field(ge=1024)] = 1_048_576
    """Largest body of a request."""
    allowed_hosts: tuple[str, ...] = ()
    """Names beside loopback and `host` under which it may be asked for, without a port."""
    encoder: Literal["auto", "off", "embedded", "role"] = "auto"
    """What finds by meaning, beside the words: the model role embedding, which is sent all of the memory,
    or the one of the extra `encoder` (125 MB). auto = the role where it is set, else the extra where it is
    installed, else words alone."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages of other origins that may use it, e.g. https://mind.example.org."""


class StaticPaths(_Section):
    """Where the static truths lie, relative to the home."""

    meta_axioms: str = "config/meta_axioms.json"
    """The constitution and its nine axioms."""
    identity: str = "config/identity.json"
    """Who this system is."""
    metalaws: str = "config/metalaws"
    """A folder: one rule in each .json or .yaml file."""
    steady_core: str = "config/uni_steady_core.json"
    """The weights of a decision."""
    kernel_skeleton: str = "config/kernel_skeleton.yaml"
    """Ports, services and nodes."""
    operators: str = "config/op_library/registry.json"
    """The registry of operators, loaded when a task names one."""
    truths: str = "config/core/truth"
    """A folder: one architecture truth in each .md file, loaded when a task touches it."""


class StaticSettings(_Section):
    """The static truths (Channel A), and how a change of them is approved."""

    paths: StaticPaths = StaticPaths()
    approval: Literal["cli", "webhook", "feishu"] = "cli"
    """cli: by `kgamma static approve` alone; webhook, feishu: an answer from there counts too."""
    approval_webhook: str | None = None
    """The address that is told of every proposal."""
    approval_secret_env: str = "KGAMMA_APPROVAL_SECRET"
    """The environment variable that holds the secret with which both sides sign."""


class MetricsSettings(_Section):
    """What is measured of the daemon and its queues."""

    every_sec: Annotated[float, Field(gt=0)] = 60.0
    """Seconds between measures, for the status and /metrics."""
    record_every_sec: Annotated[float, Field(gt=0)] = 3600.0
    """Seconds between records `metrics.`; none while nothing happens."""


class InspectorSettings(_Section):
    """The mind's look at its own health."""

    every_sec: Annotated[float, Field(gt=0)] = 3600.0
    """Seconds between inspections; once a day the slow checks are among them."""
    disk_free_mb: Annotated[int, Field(ge=0)] = 500
    """Less free disk than this is an alert, and a tenth of it one of severity core."""
    stuck_sec: Annotated[float, Field(gt=0)] = 21_600.0
    """What waits longer than this for a node is an alert."""
    clock_jump_sec: Annotated[float, Field(gt=0)] = 60.0
    """A clock that was set by more than this since the last inspection is an alert."""


class DeadLetterRouterSettings(_Section):
    """What nobody takes up is told, never deleted."""

    every_sec: Annotated[float, Field(gt=0)] = 300.0
    """Seconds between looks."""
    stale_days: Annotated[float, Field(gt=0)] = 7.0
    """Messages in outbox/ that nobody took for as long are an alert."""
    waiting_hours: Annotated[float, Field(gt=0)] = 24.0
    """Approvals and requests of tools that wait for as long are an alert."""
    orphan_hours: Annotated[float, Field(gt=0)] = 1.0
    """Files that no node watches, or whose time to live is over, are an alert after as long."""


class ClockSettings(_Section):
    """Time, and trial time."""

    zone: str | None = None
    """IANA name, e.g. Asia/Shanghai; None = the system's."""
    trial: bool = False
    """Allow the two settings below, for tests and trials only."""
    start: str | None = None
    """RFC 3339: the moment the trial begins at."""
    rate: Annotated[float, Field(gt=0)] = 1.0
    """Trial seconds per real second."""

    @property
    def per_real_sec(self) -> float:
        """Seconds of the mind's time that pass in one real second."""
        return self.rate if self.trial else 1.0


class LogSettings(_Section):
    """data/kernel/logs/kgamma.log, one JSON object a line, rotated."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least weighty record that is written."""
    max_bytes: Annotated[int, Field(ge=10_000)] = 5_000_000
    """Size at which a log file is put aside."""
    backups: Annotated[int, Field(ge=0)] = 3
    """Files put aside that are kept."""


class DebugSettings(_Section):
    """For crash tests."""

    enabled: bool = False
    """Allow kill_at."""
    kill_at: str | None = None
    """`step` or `step:n`: SIGKILL this process the n-th time it reaches the step (docs/crash-matrix.md)."""


class Settings(_Section):
    """config/kernel.yaml and KGAMMA_ variables, checked."""

    mind: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")] = "main"
    """The name of this mind; stands in every envelope."""
    data_dir: str = "data/kernel"
    """The mind's folder, relative to the home."""
    language: Literal["auto", "en", "zh"] = "auto"
    """Language of prompts and templates; auto follows the event."""
    topology: str = "config/topology.yaml"
    """The circuit, relative to the home."""
    shutdown_grace_sec: Annotated[float, Field(ge=0)] = 10.0
    """How long running model calls may finish at SIGTERM."""
    bus: BusSettings = BusSettings()
    inbox: InboxSettings = InboxSettings()
    preprocessor: PreprocessorSettings = PreprocessorSettings()
    internalizer: InternalizerSettings = InternalizerSettings()
    stream: StreamSettings = StreamSettings()
    consolidate: ConsolidateSettings = ConsolidateSettings()
    context: ContextSettings = ContextSettings()
    rhythm: RhythmSettings = RhythmSettings()
    loop: LoopSettings = LoopSettings()
    actions: ActionSettings = ActionSettings()
    trust: TrustSettings = TrustSettings()
    budget: BudgetSettings = BudgetSettings()
    model: ModelSettings = ModelSettings()
    gateway: GatewaySettings = GatewaySettings()
    static: StaticSettings = StaticSettings()
    metrics: MetricsSettings = MetricsSettings()
    inspector: InspectorSettings = InspectorSettings()
    dead_letter_router: DeadLetterRouterSettings = DeadLetterRouterSettings()
    clock: ClockSettings = ClockSettings()
    log: LogSettings = LogSettings()
    debug: DebugSettings = DebugSettings()

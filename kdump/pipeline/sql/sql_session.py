"""Run SQL statements over the tables of log directories, on Spark."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, Self, TypeVar

import pyarrow as pa
from msgspec import Struct

from kdump.engine import spark_archive
from kdump.engine.progress import TICK_SECONDS
from kdump.engine.sights import AnotherPlaceError
from kdump.engine.spark_installation import first_line
from kdump.engine.spark_session import Passing
from kdump.errors import KdumpError
from kdump.jobs.table_rows.all_tables import TABLES
from kdump.payloads.record_payloads import RecordPayloads
from kdump.phases import phase
from kdump.pipeline.sql.permitted_statements import (
    DroppedView,
    Explanation,
    NewView,
    Query,
    Setting,
    permitted,
    require_reading,
)
from kdump.pipeline.sql.sql_spark import SPARK_PROPERTIES, SqlSpark, only_on_spark
from kdump.pipeline.sql.sql_statements import (
    UNSAFE_FUNCTIONS,
    StatementError,
    clean_message,
    names_in,
    require_statement,
    spark_cause,
    with_quoted_offset,
)
from kdump.pipeline.sql.statement_needs import (
    EVERYTHING,
    TableNeeds,
    mentions,
    needs_text,
    statement_needs,
)
from kdump.pipeline.sql.table_views import (
    NOT_READ,
    Report,
    SkippedData,
    TableRead,
    TableViews,
    TaskEnd,
    problems_logged,
    start_worker,
)
from kdump.tables.kafka_log.options import Mode
from kdump.tables.table import Table
from kdump.words import counted

Result = TypeVar("Result")

_FEW_TASKS: Final = 4
_BY_SIZE: Final = (
    # Compiling code takes a second, which is longer than few rows take without.
    ("spark.sql.codegen.wholeStage", "false", "true"),
    ("spark.sql.codegen.factoryMode", "NO_CODEGEN", "FALLBACK"),
    ("spark.sql.adaptive.enabled", "false", "true"),
    ("spark.sql.shuffle.partitions", "2", "64"),
)
"""Properties of statements with few and with many tasks."""
_WAVE_GROWTH: Final = 4
_WAVE_BYTES: Final = 128 << 20
"""So many bytes of partitions of a result are run at a time, as far as is known before."""


class ResultColumn(Struct, frozen=True):
    """A column of a result.

    Attributes:
        name: as Spark names it; two may be the same.
    """

    name: str
    sql_type: str


class QueryResult(Struct):
    """The result of a statement.

    Attributes:
        columns: in order.
        schema: the same for Arrow.
        batches: Arrow batches of rows; runs the statement as they are taken.
        problems: what was left out until now.
        done: what the statement did, if it has no rows because it changed the session.
    """

    columns: tuple[ResultColumn, ...]
    schema: pa.Schema
    batches: Generator[pa.RecordBatch, None, None]
    problems: list[SkippedData]
    done: str | None = None


class SqlSession:
    """A Spark session with the tables of some directories as views; a context that ends it.

    Spark starts in the background; the first statement waits for it.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        payloads: RecordPayloads | None = None,
        spark: SqlSpark | None = None,
    ) -> None:
        """Take a Spark that starts, or begin to start one.

        Args:
            options: of the data source, for the tables that have them.
            payloads: how keys and values of records become text (default: if they are UTF-8).
            spark: which is ended with the session.

        Raises:
            KdumpError: Spark cannot be started.
        """
        begun = spark or SqlSpark.begin()
        self.tables: Mapping[str, Table] = TABLES
        self._options = {"mode": Mode.DROPMALFORMED.value} | dict(options)
        self._payloads = payloads or RecordPayloads()
        self._pushed = {table.name: table.pushed for table in self.tables.values()}
        self._spark = begun.session
        self._chosen = begun.chosen
        self._settings: dict[str, str] = {}
        self._defined: dict[str, str] = {}
        self._starting: _Call[tuple[Any, TableViews]] | None = None
        self._sql: Any = None
        self._views: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, (GeneratorExit, StatementError)):
            was_quick = self._spark.is_quick
            self._spark.close()
            if was_quick:
                spark_archive.make_in_background()
        else:
            self._spark.abort()

    def start(self) -> None:
        """Wait until Spark has started.

        Raises:
            KdumpError: it does not start.
        """
        if self._starting is None:
            self._starting = _Call(self._started)
        with phase("starting Spark"):
            self._sql, self._views = self._starting.result()

    def _started(self) -> tuple[Any, TableViews]:
        from pyspark.sql import SparkSession as PySparkSession

        with only_on_spark():
            context = self._spark.context
        threading.Thread(
            target=start_worker, args=[context], name="kdump warm-up", daemon=True
        ).start()
        # PySpark logs each failure of a statement, which is reported once here.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        # Views and settings of another session of this process are not those of this one.
        sql = PySparkSession(context).newSession()
        # Spark may have been started by this process before, with other properties.
        own = {name: self._spark.properties[name] for name in SPARK_PROPERTIES}
        for name, value in (own | self._by_size(tasks=0)).items():
            if name.startswith("spark.sql."):
                sql.conf.set(name, value)
        _drop_functions(sql, UNSAFE_FUNCTIONS)
        return sql, TableViews(sql, self.tables, self._options, self._payloads)

    def query(self, text: str, most_rows: int | None = None) -> QueryResult:
        """Plan a statement; taking its batches runs it.

        Args:
            text: one statement, without a semicolon.
            most_rows: the statement may stop after so many rows.

        Raises:
            StatementError: the statement is wrong, or is not run.
            KdumpError: Spark does not start, or something cannot be listed.
            OSError: a file cannot be read.
        """
        require_statement(text)
        text = with_quoted_offset(text)
        self.start()
        problems: list[SkippedData] = []
        running = _Running(self._sql)
        with (
            phase("planning the statement"),
            problems_logged(problems.append),
            self._errors(),
        ):
            return running.wait_for(lambda: self._result(text, most_rows, running, problems))

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the temporary views."""
        return tuple(sorted(self._defined))

    def _result(
        self, text: str, most_rows: int | None, running: _Running, problems: list[SkippedData]
    ) -> QueryResult:
        """Plan a statement that has a result; others are done at once."""
        parsed = self._sql._jsparkSession.sessionState().sqlParser().parsePlan(text)
        match permitted(parsed, self._sql._jvm, self.tables):
            case Query() as query:
                return self._rows(query, text, most_rows, running, problems)
            case Explanation(plan, mode):
                return _lines("plan", list(self._explained(plan, mode, text, running)))
            case NewView(name, plan):
                return _without_rows(self._create_view(name, plan, text))
            case DroppedView(name, is_required):
                return _without_rows(self._drop_view(name, is_required=is_required))
            case Setting(name, value):
                return _without_rows(self._set(name, value))

    def _rows(
        self,
        query: Query,
        text: str,
        most_rows: int | None,
        running: _Running,
        problems: list[SkippedData],
    ) -> QueryResult:
        from pyspark.sql.pandas.types import to_arrow_schema

        frame, reads = self._planned(query, text, running.reports())
        row_type = frame.schema
        frame, tasks = _in_arrow(frame), sum(each.tasks for each in reads)
        columns = tuple(
            ResultColumn(each.name, each.dataType.simpleString()) for each in row_type.fields
        )
        schema = to_arrow_schema(frame.schema, timezone="UTC")
        batches = self._batches(frame, schema, most_rows, tasks, running, problems)
        return QueryResult(columns, schema, batches, problems)

    # What changes the session

    def _create_view(self, name: str, plan: Any, text: str) -> str:
        """Create a view; Spark plans its query again in each statement that uses it."""
        self._views.show_columns(self._tables_in(text))
        require_reading(self._execution(plan).analyzed(), self._sql._jvm)
        self._sql.sql(text)
        self._defined[name.lower()] = text
        return f"created view {name}"

    def _drop_view(self, name: str, *, is_required: bool) -> str:
        if self._sql.catalog.dropTempView(name):
            self._defined.pop(name.lower(), None)
            return f"dropped view {name}"
        if is_required:
            raise StatementError(f"there is no view {name}")
        return f"there was no view {name}"

    def _set(self, name: str, value: str) -> str:
        self._sql.conf.set(name, value)
        self._settings[name] = value
        return f"{name} = {value}"

    def _tables_in(self, text: str) -> set[str]:
        """The tables that a statement may use, itself or by views."""
        found: set[str] = set()
        unseen, texts = dict(self._defined), [text]
        while texts:
            each = texts.pop()
            found |= names_in(each, self.tables)
            texts += [unseen.pop(name) for name in names_in(each, unseen)]
        return found

    # Planning

    def _planned(self, query: Query, text: str, reports: Any) -> tuple[Any, list[TableRead]]:
        """The statement as a ``DataFrame`` over views of what it needs, and what these read."""
        named = self._tables_in(text)
        self._views.show_columns(named)
        if query.is_showing:
            return _frame_of(query.plan, self._sql), []
        everything = dict.fromkeys(named, EVERYTHING)
        needs = statement_needs(self._checked_plan(query.plan), self._pushed)
        reads = self._views.read(everything if needs is None else needs, reports)
        frame = self._sized(query.plan, reads)
        if needs is not None and not self._is_covered(frame, needs):
            reads = self._views.read(everything, reports)
            frame = self._sized(query.plan, reads)
        return frame, reads

    def _sized(self, plan: Any, reads: Iterable[TableRead]) -> Any:
        """The statement as a ``DataFrame``, planned for the tasks that read."""
        for name, value in self._by_size(sum(each.tasks for each in reads)).items():
            self._sql.conf.set(name, value)
        return _frame_of(plan, self._sql)

    def _by_size(self, tasks: int) -> dict[str, str]:
        """The properties that depend on the number of tasks that read."""
        return {
            name: of_few if tasks <= _FEW_TASKS else of_many
            for name, of_few, of_many in _BY_SIZE
            if name not in self._chosen and name not in self._settings
        }

    def _execution(self, plan: Any) -> Any:
        """Spark's ``QueryExecution`` of a plan, which never runs a command."""
        mode = self._sql._jvm.org.apache.spark.sql.execution.CommandExecutionMode
        return self._sql._jsparkSession.sessionState().executePlan(plan, mode.SKIP())

    def _checked_plan(self, plan: Any) -> Any:
        """The optimized plan of a statement that only reads."""
        execution = self._execution(plan)
        require_reading(execution.analyzed(), self._sql._jvm)
        return execution.optimizedPlan()

    def _explained(self, plan: Any, mode: Any, text: str, running: _Running) -> Iterator[str]:
        """The lines of Spark's plan, and what is read for it."""
        frame, reads = self._planned(Query(plan), text, running.reports())
        yield from str(frame._jdf.queryExecution().explainString(mode)).strip().splitlines()
        yield ""
        yield "== Read from the log directories =="
        for each in reads:
            yield f"{each.table}: {needs_text(each.needs)}; {counted(each.tasks, 'task')}"
        if not reads:
            yield "nothing"

    def _is_covered(self, frame: Any, needs: Mapping[str, TableNeeds]) -> bool:
        """Whether the plan that will run needs no more than what the views read.

        It was made a moment later than the plan before, which matters for ``now()``. And Spark
        does not simplify conditions on what stands for a column that was not read as it simplified
        those on the column: it may keep a branch of the statement that it had left out.
        """
        plan = frame._jdf.queryExecution().optimizedPlan()
        found = statement_needs(plan, self._pushed)
        return (
            found is not None
            and all(name in needs and needs[name].covers(each) for name, each in found.items())
            and not mentions(plan, NOT_READ)
        )

    # Running

    def _batches(
        self,
        frame: Any,
        schema: pa.Schema,
        most_rows: int | None,
        tasks: int,
        running: _Running,
        problems: list[SkippedData],
    ) -> Generator[pa.RecordBatch, None, None]:
        refusals: list[AnotherPlaceError] = []
        with phase("running the statement", tasks) as progress:

            def take(report: Report) -> None:
                if isinstance(report, TaskEnd):
                    progress.step()
                elif isinstance(report, AnotherPlaceError):
                    refusals.append(report)
                    running.cancel()
                else:
                    problems.append(report)

            running.take = take
            try:
                with self._errors():
                    for batch in self._waves(frame, schema, most_rows, tasks, running):
                        # A task that refused has no rows: those of the others are not the answer.
                        if refusals:
                            break
                        yield batch
                if refusals:
                    raise refusals[0]
            except BaseException as failure:
                running.cancel()
                if refusals and isinstance(failure, KdumpError):
                    raise refusals[0] from failure
                raise
            finally:
                running.take = _ignore

    def _waves(
        self,
        frame: Any,
        schema: pa.Schema,
        most_rows: int | None,
        tasks: int,
        running: _Running,
    ) -> Iterator[pa.RecordBatch]:
        """Run the partitions of a result in order, some at a time, until there are enough rows."""
        context = self._sql.sparkContext

        def partitioned() -> tuple[Any, int, int, int | None]:
            whole, limit = _without_limit(frame, self._sql)
            limits = [each for each in (limit, most_rows) if each is not None]
            limited = _limited(whole, min(limits), self._sql) if limits else whole
            rdd = limited._jdf.toArrowBatchRdd().toJavaRDD()
            return rdd, int(rdd.getNumPartitions()), int(context.defaultParallelism), limit

        properties = self._spark.properties | self._by_size(tasks) | self._settings
        of_sql = {name: properties[name] for name in properties if name.startswith("spark.sql.")}
        rdd, count, workers, limit = running.wait_for(partitioned)
        enough = min(each for each in (limit, most_rows, sys.maxsize) if each is not None)
        begin, size, rows = 0, 1, 0
        while begin < count and rows < enough:
            end, wave_bytes = min(count, begin + size), 0
            for batch in running.collect(rdd, range(begin, end), schema, of_sql):
                wave_bytes += batch.nbytes
                wanted = batch if limit is None else batch.slice(0, limit - rows)
                rows += wanted.num_rows
                yield wanted
            # Java holds the rows of a wave.
            fitting = _WAVE_BYTES * (end - begin) // max(1, wave_bytes)
            begin, size = end, max(1, min(size * _WAVE_GROWTH, 2 * workers, fitting))

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn Spark's exceptions into kdump's."""
        try:
            yield
        except (KdumpError, OSError, KeyboardInterrupt, GeneratorExit):
            raise
        except Exception as failure:
            raise self._as_error(failure) from failure

    def _as_error(self, failure: Exception) -> KdumpError:
        cause = spark_cause(failure)
        if cause is None and _is_of_statement(failure):
            cause = str(failure)
        if cause is not None:
            return StatementError(clean_message(cause, _view_of(failure)))
        return KdumpError(f"Spark failed: {self._spark.cause() or first_line(failure)}")


def _is_of_statement(failure: Exception) -> bool:
    """Whether Spark's parser or analyser refused a statement; some refusals have no SQLSTATE."""
    from pyspark.errors import AnalysisException

    return isinstance(failure, AnalysisException)


def _view_of(failure: Exception) -> str | None:
    """The view in whose text Spark found what is wrong; None if it is in the statement."""
    if not hasattr(failure, "getQueryContext"):
        return None
    found = [each for each in failure.getQueryContext() if str(each.objectType()) == "VIEW"]
    return str(found[0].objectName()) if found else None


def _lines(name: str, lines: list[str]) -> QueryResult:
    """A result with a column of text."""
    schema = pa.schema([(name, pa.string())])
    batch = pa.RecordBatch.from_pydict({name: lines}, schema)
    return QueryResult((ResultColumn(name, "string"),), schema, (each for each in [batch]), [])


def _without_rows(done: str) -> QueryResult:
    """The result of a statement that changed the session."""
    batches: Iterable[pa.RecordBatch] = ()
    return QueryResult((), pa.schema([]), (each for each in batches), [], done)


def _drop_functions(sql: Any, names: Iterable[str]) -> None:
    """Take functions out of Spark's registries: of this session, and of the JVM."""
    catalyst = sql._jvm.org.apache.spark.sql.catalyst
    some = sql._jvm.scala.Some
    registries = (
        sql._jsparkSession.sessionState().functionRegistry(),
        catalyst.analysis.FunctionRegistry.builtin(),
    )
    for name in names:
        function = catalyst.FunctionIdentifier(name, some("builtin"), some("system"))
        for registry in registries:
            registry.dropFunction(function)


class _Running:
    """What one statement runs in Spark.

    Spark is called by threads, so that ^C reaches this one, and cancels the jobs.
    """

    def __init__(self, sql: Any) -> None:
        self._sql = sql
        self._context = sql.sparkContext
        self._group = f"kdump-{uuid.uuid4()}"
        self.take: Callable[[Report], None] = _ignore

    def reports(self) -> Any:
        """An accumulator that passes the reports of tasks to :attr:`take`.

        Each statement has its own: after ^C, tasks of the last one may still end.
        """
        return self._context.accumulator([], Passing(self._take_each))

    def _take_each(self, reports: Iterable[Report]) -> None:
        for each in reports:
            self.take(each)

    def wait_for(self, call: Callable[[], Result]) -> Result:
        """Call a function in another thread; ^C cancels what it runs in Spark."""

        def grouped() -> Result:
            self._context.setJobGroup(self._group, "kdump query", interruptOnCancel=True)
            # Spark's parser and its expressions take the settings of the thread's session.
            sessions = self._sql._jvm.org.apache.spark.sql.classic.SparkSession
            sessions.setActiveSession(self._sql._jsparkSession)
            return call()

        try:
            return _Call(grouped).result()
        except BaseException:
            self.cancel()
            raise

    def collect(
        self, rdd: Any, partitions: range, schema: pa.Schema, properties: Mapping[str, str]
    ) -> Iterator[pa.RecordBatch]:
        """Run some partitions of an RDD of Arrow batches, and yield these in order.

        Args:
            rdd: of Java.
            partitions: their numbers.
            schema: of the batches.
            properties: for the tasks, which do not know those of the session.
        """
        from pyspark.serializers import NoOpSerializer
        from pyspark.util import _load_from_socket

        def run() -> Any:
            for name, value in properties.items():
                self._context.setLocalProperty(name, value)
            numbers = self._context._jvm.java.util.ArrayList()
            for each in partitions:
                numbers.add(each)
            return self._context._jvm.PythonRDD.runJob(self._context._jsc.sc(), rdd, numbers)

        served = self.wait_for(run)
        with _load_from_socket(served, NoOpSerializer()) as messages:
            for message in messages:
                yield pa.ipc.read_record_batch(pa.ipc.read_message(message), schema)

    def cancel(self) -> None:
        """End the jobs of the statement."""
        # If the JVM is gone there is nothing to cancel.
        with contextlib.suppress(Exception):
            self._context.cancelJobGroup(self._group)


class _Call(Generic[Result]):
    """A call in another thread.

    ^C does not reach a thread that waits for Spark, and py4j would log where it was.
    """

    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self._results: list[Result] = []
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="kdump SQL", daemon=True).start()

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as failure:  # noqa: BLE001 - raised again by the waiting thread
            self._failure = failure
        self._ended.set()

    def result(self) -> Result:
        """Wait for the end, also again after ^C."""
        # Wakes up now and then, so that signals are handled.
        while not self._ended.wait(TICK_SECONDS):
            pass
        if self._failure is not None:
            raise self._failure
        return self._results[0]


def _without_limit(frame: Any, sql: Any) -> tuple[Any, int | None]:
    """A ``DataFrame`` without the limit at the end of its statement, and that limit, if any."""
    plan = frame._jdf.queryExecution().analyzed()
    if str(plan.nodeName()) != "GlobalLimit" or str(plan.child().nodeName()) != "LocalLimit":
        return frame, None
    limit = plan.maxRows()
    if not limit.isDefined():  # an expression
        return frame, None
    return _frame_of(plan.child().child(), sql), int(limit.get())


def _frame_of(plan: Any, sql: Any) -> Any:
    """The ``DataFrame`` of a logical plan."""
    from pyspark.sql import DataFrame

    dataset = sql._jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(sql._jsparkSession, plan), sql)


def _limited(frame: Any, most_rows: int, sql: Any) -> Any:
    """A ``DataFrame`` that gives the first rows of another, or at least so many.

    Spark's own limit reads every partition up to it if rows are not sorted; here each partition
    stops, and who takes them stops in time.
    """
    root = frame._jdf.queryExecution().optimizedPlan()
    while str(root.nodeName()) == "Project":
        root = root.child()
    limited = frame.limit(most_rows)
    if str(root.nodeName()) == "Sort":
        return limited
    # Spark's limit is a limit of all rows over a limit for each partition.
    return _frame_of(limited._jdf.queryExecution().logical().child(), sql)


def _ignore(report: Report) -> None:
    """Take a report that comes after the end of its statement."""


def _in_arrow(frame: Any) -> Any:
    """A ``DataFrame`` whose intervals and variants are text, because Arrow has no such types."""
    types = [_arrow_type(field.dataType) for field in frame.schema.fields]
    if types == [field.dataType for field in frame.schema.fields]:
        return frame
    # Columns may have the same name.
    numbered = frame.toDF(*map(str, range(len(types))))
    return numbered.select(
        *(
            numbered[str(number)].cast(data_type).alias(name)
            for number, (data_type, name) in enumerate(zip(types, frame.columns, strict=True))
        )
    )


def _arrow_type(data_type: Any) -> Any:
    """The ``DataType`` to which values are cast for Arrow."""
    from pyspark.sql import types

    match data_type:
        case types.AnsiIntervalType() | types.CalendarIntervalType() | types.VariantType():
            return types.StringType()
        case types.ArrayType():
            return types.ArrayType(_arrow_type(data_type.elementType), data_type.containsNull)
        case types.MapType():
            key, value = _arrow_type(data_type.keyType), _arrow_type(data_type.valueType)
            return types.MapType(key, value, data_type.valueContainsNull)
        case types.StructType():
            return types.StructType(
                [
                    types.StructField(each.name, _arrow_type(each.dataType), each.nullable)
                    for each in data_type.fields
                ]
            )
    return data_type

"""Options that Spark's formats and Spark itself know, to find those that are one letter beside.

Spark passes over an option that it does not know, in silence. A name that nobody knows may belong to a newer Spark or a
package; one that is nearly a known name is a typing mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from headrace.language.sql.call_options import TEXT_OPTIONS_OF
from headrace.language.words import words

__all__ = ["near_miss", "near_setting"]

# How much of a name must be right: of a word all but some letters, of a name of several words all but one or two.
_NEAR, _NEAR_WORDS = 0.8, 0.94
# Of sources that take in files as they come.
_FILES = """maxFilesPerTrigger maxBytesPerTrigger maxFileAge maxCachedFiles latestFirst fileNameOnly cleanSource
    sourceArchiveDir recursiveFileLookup pathGlobFilter modifiedBefore modifiedAfter ignoreCorruptFiles
    ignoreMissingFiles mergeSchema"""
_TEXTS = "lineSep encoding charset compression multiLine samplingRatio"
_PARQUET = "compression mergeSchema datetimeRebaseMode int96RebaseMode"
_OF_FORMAT: Mapping[str, str] = {
    "json": f"{_TEXTS} {' '.join(TEXT_OPTIONS_OF['json'])}",
    "csv": f"{_TEXTS} header enforceSchema inferSchema maxColumns maxCharsPerColumn {' '.join(TEXT_OPTIONS_OF['csv'])}",
    "xml": f"{_TEXTS} rowTag rootTag declaration {' '.join(TEXT_OPTIONS_OF['xml'])}",
    "text": "wholetext lineSep compression encoding",
    "parquet": _PARQUET,
    "orc": "compression mergeSchema",
    "avro": "avroSchema avroSchemaUrl recordName recordNamespace compression mode datetimeRebaseMode",
    "binaryFile": "pathGlobFilter",
    "rate": "rowsPerSecond rampUpTime numPartitions",
    "rate-micro-batch": "rowsPerBatch numPartitions startTimestamp advanceMillisPerBatch",
    "socket": "host port includeTimestamp numPartitions",
    "memory": "rows",
    "python": "function",
    "console": "numRows truncate",
    "jdbc": """url dbtable query driver user password batchsize isolationLevel numPartitions truncate queryTimeout
        fetchsize createTableOptions createTableColumnTypes sessionInitStatement keytab principal
        connectionProvider""",
    "delta": f"""{_PARQUET} delta.appendOnly delta.checkpointInterval delta.logRetentionDuration
        delta.deletedFileRetentionDuration delta.autoOptimize.optimizeWrite delta.autoOptimize.autoCompact""",
    "kafka": """kafka.bootstrap.servers subscribe subscribePattern assign topic startingOffsets endingOffsets
        startingTimestamp startingOffsetsByTimestamp endingOffsetsByTimestamp failOnDataLoss maxOffsetsPerTrigger
        minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition groupIdPrefix includeHeaders
        fetchOffset.numRetries fetchOffset.retryIntervalMs kafkaConsumer.pollTimeoutMs kafka.group.id
        kafka.security.protocol kafka.sasl.mechanism kafka.sasl.jaas.config kafka.ssl.truststore.location
        kafka.ssl.truststore.password kafka.ssl.keystore.location kafka.ssl.keystore.password
        kafka.ssl.key.password kafka.compression.type kafka.acks kafka.linger.ms kafka.batch.size
        kafka.max.request.size kafka.request.timeout.ms kafka.delivery.timeout.ms kafka.isolation.level
        kafka.client.id""",
}
_TAKES_FILES = words("parquet json csv orc text xml avro binaryFile")
# Settings of Spark that pipelines set; Spark has hundreds more.
_SETTINGS = words(
    """spark.app.name spark.master spark.driver.memory spark.driver.cores spark.driver.maxResultSize
    spark.driver.memoryOverhead spark.driver.extraJavaOptions spark.driver.extraClassPath spark.driver.host
    spark.driver.bindAddress spark.executor.memory spark.executor.cores spark.executor.instances
    spark.executor.memoryOverhead spark.executor.extraJavaOptions spark.executor.extraClassPath
    spark.executor.pyspark.memory spark.cores.max spark.task.cpus spark.task.maxFailures spark.default.parallelism
    spark.sql.shuffle.partitions spark.sql.adaptive.enabled spark.sql.session.timeZone spark.sql.ansi.enabled
    spark.sql.warehouse.dir spark.sql.extensions spark.sql.files.maxPartitionBytes
    spark.sql.files.openCostInBytes spark.sql.autoBroadcastJoinThreshold spark.sql.streaming.checkpointLocation
    spark.sql.execution.arrow.maxRecordsPerBatch spark.sql.parquet.compression.codec spark.sql.caseSensitive
    spark.jars spark.jars.packages spark.jars.repositories spark.jars.ivy spark.submit.pyFiles spark.local.dir
    spark.ui.enabled spark.ui.port spark.ui.showConsoleProgress spark.eventLog.enabled spark.eventLog.dir
    spark.log.level spark.serializer spark.kryoserializer.buffer.max spark.memory.fraction spark.memory.storageFraction
    spark.network.timeout spark.executor.heartbeatInterval spark.rpc.message.maxSize spark.speculation
    spark.scheduler.mode spark.dynamicAllocation.enabled spark.dynamicAllocation.minExecutors
    spark.dynamicAllocation.maxExecutors spark.shuffle.service.enabled spark.python.worker.reuse
    spark.python.worker.memory spark.pyspark.python spark.pyspark.driver.python spark.hadoop.fs.defaultFS
    spark.hadoop.fs.s3a.access.key spark.hadoop.fs.s3a.secret.key spark.hadoop.fs.s3a.endpoint
    spark.kubernetes.container.image spark.kubernetes.namespace spark.yarn.queue"""
)


def near_miss(option: str, format_: str, reads: bool) -> str | None:
    """The option of a format that a name nearly is; None if it is one, or near none. Spark ignores case in them.

    >>> near_miss("maxFilePerTrigger", "json", True), near_miss("MAXFILESPERTRIGGER", "json", True)
    ('maxFilesPerTrigger', None)
    >>> near_miss("maxFilePerTrigger", "org.example.Source", True), near_miss("recursive", "json", True)
    (None, None)
    """
    if format_ not in _OF_FORMAT:
        return None
    known = words(_OF_FORMAT[format_]) | (words(_FILES) if reads and format_ in _TAKES_FILES else frozenset())
    return _near(option, known)


def near_setting(name: str) -> str | None:
    """The setting of Spark that a name nearly is; None if it is one, or near none that is known here.

    >>> near_setting("spark.sql.shufle.partitions"), near_setting("spark.sql.shuffle.partitions")
    ('spark.sql.shuffle.partitions', None)
    >>> near_setting("spark.sql.streaming.stateStore.providerClass")
    """
    return _near(name, _SETTINGS)


def _near(name: str, known: Iterable[str]) -> str | None:
    by_lower = {each.lower(): each for each in sorted(known)}
    if name.lower() in by_lower:
        return None
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=_NEAR_WORDS if "." in name else _NEAR)
    return by_lower[close[0]] if close else None

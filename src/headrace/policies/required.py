"""Settings of Spark that answers depend on: every session has them, a given one included; no pipeline changes them."""

from __future__ import annotations

__all__ = ["REQUIRED"]

# Instants are UTC, errors are errors, SQL reaches declared streams only.
REQUIRED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.runSQLOnFiles": "false",
    # Otherwise '${env:X}' and '${system:X}' inside SQL become what the driver's environment holds.
    "spark.sql.variable.substitute": "false",
    # Rows of files that Spark passes over would be in nobody's ledger.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Instants in Parquet as instants, whoever writes the file.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

//! Records as they were written, by way of the views: each once.

use clickhouse::{Row, RowOwned, RowRead};

use super::row::{CallRow, EventRow, TurnRow};
use super::schema::literal;
use super::{ClickHouseSink, Error};
use crate::trace::{EventRecord, ToolCallRecord, TurnRecord};

impl ClickHouseSink {
    /// Requests of a run in the order of their start, of every kind, at most `most`.
    ///
    /// # Errors
    /// The server cannot be asked, or holds what this version does not know.
    pub async fn turns(&self, run: &str, most: usize) -> Result<Vec<TurnRecord>, Error> {
        self.records::<TurnRow, _>(
            "turns",
            "started, UUIDToNum(id)",
            ("batch", "UInt64"),
            run,
            most,
        )
        .await
    }

    /// Tool calls of a run as they stand now, in the order in which they were asked for, at most
    /// `most`.
    ///
    /// # Errors
    /// As [`ClickHouseSink::turns`].
    pub async fn calls(&self, run: &str, most: usize) -> Result<Vec<ToolCallRecord>, Error> {
        let order = "asked, UUIDToNum(turn_id), call_id";
        self.records::<CallRow, _>("tool_calls", order, ("version", "UInt8"), run, most)
            .await
    }

    /// Events of a run in their order, at most `most`.
    ///
    /// # Errors
    /// As [`ClickHouseSink::turns`].
    pub async fn events(&self, run: &str, most: usize) -> Result<Vec<EventRecord>, Error> {
        self.records::<EventRow, _>("events", "at, UUIDToNum(id)", ("", ""), run, most)
            .await
    }

    /// For `left_out` see [`columns`].
    async fn records<R, T>(
        &self,
        view: &str,
        order: &str,
        left_out: (&str, &str),
        run: &str,
        most: usize,
    ) -> Result<Vec<T>, Error>
    where
        R: RowOwned + RowRead,
        T: TryFrom<R>,
        Error: From<T::Error>,
    {
        let sql = format!(
            "SELECT {} FROM {} WHERE run_id = {} ORDER BY {order} LIMIT {most}",
            columns::<R>(left_out),
            self.dialect.name(view),
            literal(run)
        );
        let rows: Vec<R> = self.ask(&sql).await?;
        let mut records = Vec::with_capacity(rows.len());
        for row in rows {
            records.push(T::try_from(row)?);
        }
        Ok(records)
    }
}

/// The columns of a row, of a view. `left_out` is one that the view does not have, and its type.
pub(super) fn columns<R: Row>(left_out: (&str, &str)) -> String {
    let columns = R::COLUMN_NAMES.iter().map(|name| {
        if *name == left_out.0 {
            format!("to{}(0) AS {name}", left_out.1)
        } else {
            (*name).to_owned()
        }
    });
    columns.collect::<Vec<_>>().join(", ")
}

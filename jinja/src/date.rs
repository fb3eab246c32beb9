//! The day's date, and C's `strftime`.

use crate::failure::{fail, Result};
use std::fmt::Write as _;

/// A moment, without a time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    pub year: i32,
    /// From 1.
    pub month: u32,
    /// From 1.
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
}

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

fn leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn month_days(year: i32, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Date {
    /// Returns midnight of a day, or None if the calendar lacks it.
    pub fn day(year: i32, month: u32, day: u32) -> Option<Self> {
        let exists = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=month_days(year, month)).contains(&day);
        exists.then_some(Self { year, month, day, hour: 0, minute: 0, second: 0 })
    }

    /// Converts seconds since 1970 began to a date, in UTC.
    pub fn from_unix(seconds: u64) -> Self {
        let (mut days, rest) = (seconds / 86_400, (seconds % 86_400) as u32);
        let (mut year, mut month) = (1970, 1);
        while days >= 365 + u64::from(leap(year)) {
            days -= 365 + u64::from(leap(year));
            year += 1;
        }
        while days >= u64::from(month_days(year, month)) {
            days -= u64::from(month_days(year, month));
            month += 1;
        }
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        Self { year, month, day: days as u32 + 1, hour, minute, second }
    }

    /// Returns the day of the year, from 0.
    fn year_day(&self) -> u32 {
        (1..self.month).map(|month| month_days(self.year, month)).sum::<u32>() + self.day - 1
    }

    /// Returns the day of the week. Sunday is 0.
    fn week_day(&self) -> u32 {
        let years = self.year as u32 - 1;
        (1 + years + years / 4 - years / 100 + years / 400 + self.year_day()) % 7
    }

    /// Returns ISO 8601's week: its year and its number.
    fn iso_week(&self) -> (i32, u32) {
        let weekday = (self.week_day() + 6) % 7; // Monday is 0
        let week = (self.year_day() as i32 - weekday as i32 + 10) / 7;
        let long = |year: i32| {
            let first = Self { year, month: 1, day: 1, ..*self }.week_day();
            first == 4 || (first == 3 && leap(year))
        };
        match week {
            0 => (self.year - 1, 52 + u32::from(long(self.year - 1))),
            53 if !long(self.year) => (self.year + 1, 1),
            week => (self.year, week as u32),
        }
    }

    /// C's `strftime` in the C locale, as Python's `datetime.strftime` calls it on Linux.
    pub fn format(&self, format: &str) -> Result<String> {
        let mut out = String::new();
        self.format_into(format, &mut out)?;
        Ok(out)
    }

    fn format_into(&self, format: &str, out: &mut String) -> Result<()> {
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if out.len() > 1 << 16 {
                return fail("strftime_now: the text gets too long");
            }
            if c != '%' {
                out.push(c);
                continue;
            }
            let (mut pad, mut upper, mut width) = (None, false, String::new());
            let directive = loop {
                match chars.next() {
                    Some(flag @ ('-' | '_' | '0')) if width.is_empty() => pad = Some(flag),
                    Some('^') if width.is_empty() => upper = true,
                    Some(digit) if digit.is_ascii_digit() => width.push(digit),
                    other => break other,
                }
            };
            let Some(directive) = directive else {
                out.push('%');
                return Ok(());
            };
            let hour12 = (self.hour + 11) % 12 + 1;
            let number = |number: u32, digits: usize, fill: char| {
                (Some((number, digits, fill)), String::new())
            };
            let words = |text: &str| (None, text.to_string());
            let inner = |format: &str| -> Result<_> { Ok((None, self.format(format)?)) };
            let week_day = self.week_day();
            let (digits, text) = match directive {
                'Y' => (None, self.year.to_string()),
                'C' => number(self.year as u32 / 100, 2, '0'),
                'y' => number(self.year as u32 % 100, 2, '0'),
                'm' => number(self.month, 2, '0'),
                'd' => number(self.day, 2, '0'),
                'e' => number(self.day, 2, ' '),
                'H' => number(self.hour, 2, '0'),
                'k' => number(self.hour, 2, ' '),
                'I' => number(hour12, 2, '0'),
                'l' => number(hour12, 2, ' '),
                'M' => number(self.minute, 2, '0'),
                'S' => number(self.second, 2, '0'),
                'f' => words("000000"),
                'j' => number(self.year_day() + 1, 3, '0'),
                'w' => number(week_day, 1, '0'),
                'u' => number((week_day + 6) % 7 + 1, 1, '0'),
                'U' => number((self.year_day() + 7 - week_day) / 7, 2, '0'),
                'W' => number((self.year_day() + 7 - (week_day + 6) % 7) / 7, 2, '0'),
                'V' => number(self.iso_week().1, 2, '0'),
                'G' => (None, self.iso_week().0.to_string()),
                'g' => number(self.iso_week().0 as u32 % 100, 2, '0'),
                'A' => words(DAYS[week_day as usize]),
                'a' => words(&DAYS[week_day as usize][..3]),
                'B' => words(MONTHS[self.month as usize - 1]),
                'b' | 'h' => words(&MONTHS[self.month as usize - 1][..3]),
                'p' => words(if self.hour < 12 { "AM" } else { "PM" }),
                'P' => words(if self.hour < 12 { "am" } else { "pm" }),
                'n' => words("\n"),
                't' => words("\t"),
                'z' | 'Z' => words(""),
                '%' => words("%"),
                'D' | 'x' => inner("%m/%d/%y")?,
                'F' => inner("%Y-%m-%d")?,
                'T' | 'X' => inner("%H:%M:%S")?,
                'R' => inner("%H:%M")?,
                'r' => inner("%I:%M:%S %p")?,
                'c' => inner("%a %b %e %H:%M:%S %Y")?,
                other => {
                    out.push('%');
                    out.push(other);
                    continue;
                }
            };
            let width = match width.parse::<usize>() {
                Ok(width) if width > 1000 => return fail("strftime_now: the text gets too long"),
                Ok(width) => Some(width),
                Err(_) => None,
            };
            match (digits, pad) {
                (Some((number, _, _)), Some('-')) => drop(write!(out, "{number}")),
                (Some((number, digits, fill)), pad) => {
                    let width = width.unwrap_or(digits);
                    let fill = match pad {
                        Some('_') => ' ',
                        Some('0') => '0',
                        _ => fill,
                    };
                    let text = number.to_string();
                    out.extend(std::iter::repeat_n(fill, width.saturating_sub(text.len())));
                    out.push_str(&text);
                }
                (None, _) => {
                    let text = if upper { text.to_uppercase() } else { text };
                    out.extend(std::iter::repeat_n(
                        ' ',
                        width.unwrap_or(0).saturating_sub(text.len()),
                    ));
                    out.push_str(&text);
                }
            }
        }
        Ok(())
    }
}

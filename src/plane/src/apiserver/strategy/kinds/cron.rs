//! Schedules of cron jobs: five fields, or a word with an `@`.

/// The fields with their least and greatest numbers, and the names that stand for numbers.
const FIELDS: [(u32, u32, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

const WORDS: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Says what is wrong with a schedule.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    if schedule.starts_with('@') {
        let every = schedule.strip_prefix("@every ").is_some_and(is_duration);
        return if every || WORDS.contains(&schedule) {
            Ok(())
        } else {
            Err(format!("unrecognized descriptor: {schedule}"))
        };
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let shown = fields.join(" ");
        return Err(format!("expected exactly 5 fields, found {}: [{shown}]", fields.len()));
    }
    for (field, (least, most, names)) in fields.iter().zip(FIELDS) {
        for part in field.split(',') {
            check_part(part, least, most, names)?;
        }
    }
    Ok(())
}

fn is_duration(text: &str) -> bool {
    let text = text.trim();
    text.ends_with(|last: char| last.is_ascii_alphabetic())
        && text.starts_with(|first: char| first.is_ascii_digit())
        && text.chars().all(|one| one.is_ascii_digit() || "hmsnuµ.".contains(one))
}

/// Checks `*`, `?`, `3`, `3-7`, any with `/2` behind.
fn check_part(part: &str, least: u32, most: u32, names: &[&str]) -> Result<(), String> {
    let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
    if let Some(step) = step {
        match step.parse::<u32>() {
            Ok(0) => return Err(format!("step of range should be a positive number: {part}")),
            Ok(_) => {}
            Err(_) => {
                return Err(format!("failed to parse int from {step}: strconv.Atoi: parsing {step:?}: invalid syntax"));
            }
        }
    }
    if range == "*" || range == "?" {
        return Ok(());
    }
    let number = |text: &str| -> Result<u32, String> {
        if let Some(index) = names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(u32::try_from(index).unwrap_or(0) + least);
        }
        text.parse()
            .map_err(|_| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))
    };
    let (start, end) = match range.split_once('-') {
        Some((start, end)) => (number(start)?, number(end)?),
        None => (number(range)?, number(range)?),
    };
    if start < least {
        return Err(format!("beginning of range ({start}) below minimum ({least}): {part}"));
    }
    if end > most {
        return Err(format!("end of range ({end}) above maximum ({most}): {part}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {part}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_five_fields_or_a_word() {
        for good in ["* * * * *", "*/5 0-6,22 1 jan-mar MON", "0 0 ? * 6", "@hourly", "@every 1h30m"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in
            ["", "* * * *", "60 * * * *", "* * 0 * *", "*/0 * * * *", "5-1 * * * *", "x * * * *", "@often", "* * * * 7"]
        {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}

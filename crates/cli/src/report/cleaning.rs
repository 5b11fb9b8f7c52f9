//! What `stere status --verbose` tells of cleaning: the policies, what it moves for what is written, and how full segments are.

use stere_control::cleaning::CleaningReport;

use stere_machine::size;

/// Characters of the longest bar.
const BAR_MAX: u64 = 30;

/// A bar for each tenth of utilisation, two beside each other: what was written, and what survived a cleaning.
pub fn lines(report: &CleaningReport) -> Vec<String> {
    let policies: Vec<String> = report.policies.iter().map(|(class, policy)| format!("{policy} ({class})")).collect();
    let mut lines = vec![format!("cleaning: {}", policies.join(", "))];
    lines.push(match report.moved_per_written() {
        None => "since the mount: nothing was written".into(),
        Some(ratio) => format!(
            "since the mount: {} written, {} moved ({ratio:.2} for each byte written), {} segments emptied",
            size::show(report.written_bytes),
            size::show(report.moved_bytes),
            report.emptied_segments
        ),
    });
    let all = report.segments_new.iter().chain(&report.segments_survived);
    let most = all.copied().max().unwrap_or(0);
    if most == 0 {
        return lines;
    }
    let bar = |count: u64| "#".repeat((count * BAR_MAX).div_ceil(most) as usize);
    lines.push(format!("{:>8}  {:<38}  {}", "in use", "segments as written", "segments that survived a cleaning"));
    let parts = report.segments_new.iter().zip(&report.segments_survived).enumerate();
    for (part, (new, survived)) in parts {
        let range = format!("{}-{}%", part * 10, part * 10 + 10);
        let line = format!("{range:>8}  {new:>6} {:<31}  {survived:>6} {}", bar(*new), bar(*survived));
        lines.push(line.trim_end().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion() {
        let mut report =
            CleaningReport { segments_new: vec![0; 10], segments_survived: vec![0; 10], ..Default::default() };
        assert_eq!(lines(&report).len(), 2, "there is nothing to draw of nothing");
        report.segments_new[9] = 60;
        report.segments_survived[4] = 1;
        let lines = lines(&report);
        assert_eq!(lines.len(), 13);
        assert!(lines[12].contains(&"#".repeat(30)) && !lines[12].contains(&"#".repeat(31)), "{}", lines[12]);
        assert!(lines[7].ends_with("1 #"), "one segment is seen: {}", lines[7]);
    }
}

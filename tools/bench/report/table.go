package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

// Report has the results of a whole benchmark. It is written as JSON.
type Report struct {
	Facts Facts  `json:"facts"`
	Rows  []*Row `json:"rows"`
	// Left lists what the cleanup left behind.
	Left []string `json:"left"`
	// Notes lists oddities of the run.
	Notes []string `json:"notes,omitempty"`
}

// Failed reports whether a row lacks samples or something was left behind.
func (r *Report) Failed() bool {
	for _, row := range r.Rows {
		if row.Failed != "" {
			return true
		}
	}
	return len(r.Left) > 0
}

// WriteJSON writes the report with all samples.
func (r *Report) WriteJSON(path string) error {
	return atomicfile.WriteJSON(path, r, 0o644, atomicfile.Volatile)
}

// Print prints the facts, the table, the explanations of the rows, and the phases of rows that miss their aim.
func (r *Report) Print(w io.Writer) {
	r.Facts.print(w)
	fmt.Fprintln(w)
	lines := [][]string{{"", "median", "95 % sure", "p95", "unit", "n", "aim", "met"}}
	group := ""
	for _, row := range r.Rows {
		if row.Group != group && group != "" {
			lines = append(lines, nil)
		}
		group = row.Group
		lines = append(lines, []string{
			row.Name, number(row.Median()), row.interval(), number(row.P95()), row.Unit, strconv.Itoa(len(row.Samples)), row.aim(), row.AimMet(),
		})
	}
	table(w, lines)
	r.writeRemarks(w)
}

func (r *Report) writeRemarks(w io.Writer) {
	for _, row := range r.Rows {
		if row.Failed != "" {
			fmt.Fprintf(w, "\n%s: failed: %s\n", row.Name, row.Failed)
		}
		if row.Absent != "" {
			fmt.Fprintf(w, "\n%s: not measured: %s\n", row.Name, row.Absent)
		}
	}
	for _, row := range r.Rows {
		if len(row.Phases) == 0 || !strings.HasPrefix(row.AimMet(), "no") {
			continue
		}
		fmt.Fprintf(w, "\n%s misses its aim; medians of its phases (some run concurrently):\n", row.Name)
		for _, p := range row.Phases {
			fmt.Fprintf(w, "  %8s ms  %s\n", number(summarize(p.Samples).Center), p.Name)
		}
	}
	fmt.Fprintln(w, "\nMeaning of the rows:")
	for _, row := range r.Rows {
		if row.What != "" {
			fmt.Fprintf(w, "  %s: %s\n", row.Name, row.What)
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note: "+note)
	}
	if len(r.Left) == 0 {
		fmt.Fprintln(w, "\nNothing was left behind.")
		return
	}
	fmt.Fprintf(w, "\nLEFT BEHIND (%d):\n", len(r.Left))
	for _, what := range r.Left {
		fmt.Fprintln(w, "  "+what)
	}
}

// table aligns columns: the first and the units to the left, figures to the right.
func table(w io.Writer, lines [][]string) {
	var width []int
	for _, line := range lines {
		for i, cell := range line {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 1 || i == 2 || i == 3 || i == 5 {
				cell, pad = pad+cell, ""
			}
			b.WriteString(cell + pad + "  ")
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

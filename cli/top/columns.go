package top

import (
	"strconv"
	"strings"

	"github.com/bulkhead-project/bulkhead/cli/internal/text"
)

// column is a column of top. All but the first are aligned to the right.
type column struct {
	title  string
	width  int
	from   int // minimum width of the terminal to show it
	text   func(figures) string
	colour func(figures) string // of the text, as an ANSI code; nil or "" for none
}

// allColumns are shown in this order, with two spaces before each. The names take the remaining width.
var allColumns = []column{
	{"STATUS", 17, 120, func(u figures) string { return u.status }, func(u figures) string { return stateColour(u.status) }},
	{"CPU%", 6, 0, func(u figures) string { return text.Percent(u.cpu) }, nil},
	bar("CPU", 80, func(u figures) float64 { return u.cpu }),
	{"MEM / LIMIT", 13, 0, func(u figures) string { return text.Brief(float64(u.memory)) + " / " + text.Brief(float64(u.limit)) }, nil},
	{"HOST", 6, 90, podOnly(func(u figures) string { return hostMemory(float64(u.host), text.Brief) }), nil},
	{"MEM%", 5, 100, func(u figures) string { return text.Percent(u.memoryShare()) }, nil},
	bar("MEM", 80, figures.memoryShare),
	{"RX/s", 5, 60, podOnly(func(u figures) string { return network(u, text.Brief(u.netRate.in)) }), nil},
	{"TX/s", 5, 60, podOnly(func(u figures) string { return network(u, text.Brief(u.netRate.out)) }), nil},
	{"RX", 6, 155, podOnly(func(u figures) string { return network(u, text.Brief(float64(u.net.In))) }), nil},
	{"TX", 6, 155, podOnly(func(u figures) string { return network(u, text.Brief(float64(u.net.Out))) }), nil},
	{"READ/s", 6, 140, podOnly(func(u figures) string { return text.Brief(u.diskRate.in) }), nil},
	{"WRIT/s", 6, 140, podOnly(func(u figures) string { return text.Brief(u.diskRate.out) }), nil},
	{"READ", 6, 170, podOnly(func(u figures) string { return text.Brief(float64(u.disk.In)) }), nil},
	{"WRITTEN", 7, 170, podOnly(func(u figures) string { return text.Brief(float64(u.disk.Out)) }), nil},
	{"PIDS", 5, 140, func(u figures) string { return strconv.Itoa(u.pids) }, nil},
	{"RST", 3, 0, func(u figures) string { return strconv.Itoa(u.restarts) }, nil},
}

// podOnly hides figures of containers that belong to the pod: its VM has one network and one set of disks.
func podOnly(text func(figures) string) func(figures) string {
	return func(u figures) string {
		if u.container != "" {
			return ""
		}
		return text(u)
	}
}

func network(u figures, text string) string {
	if !u.network {
		return "-"
	}
	return text
}

// barWidth is the width of a bar in columns.
const barWidth = 8

// bar returns a column that shows a share as a bar. For CPU, a full bar is one processor or more.
func bar(title string, from int, share func(figures) float64) column {
	return column{title, barWidth, from, func(u figures) string {
		full := int(barWidth*min(max(share(u), 0), 1) + 0.5)
		return strings.Repeat("|", full) + strings.Repeat(".", barWidth-full)
	}, func(u figures) string { return useColour(share(u)) }}
}

// ANSI colours that are legible on dark and light backgrounds.
const (
	green  = "32"
	yellow = "33"
	red    = "31"
)

// useColour returns the colour for a share of a limit.
func useColour(share float64) string {
	switch {
	case share >= 0.9:
		return red
	case share >= 0.7:
		return yellow
	}
	return green
}

// stateColour returns green for a good status, yellow for a temporary one and red for a bad one.
func stateColour(status string) string {
	switch status {
	case "":
		return ""
	case "Running", "Completed", "Succeeded":
		return green
	case "Pending", "Paused", "ContainerCreating", "PodInitializing", "Terminating":
		return yellow
	}
	if progress, initial := strings.CutPrefix(status, "Init:"); initial && strings.Contains(progress, "/") {
		return yellow
	}
	return red
}

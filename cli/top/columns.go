package top

import (
	"strconv"

	"github.com/bulkhead-project/bulkhead/cli/internal/text"
)

// column is a column of top. All but the first have their text at the right.
type column struct {
	title string
	width int
	from  int // columns of the terminal that it needs to be shown
	text  func(figures) string
}

// allColumns are shown in this order, with two spaces before each; the rest of
// the width is the names'.
var allColumns = []column{
	{"STATUS", 17, 120, func(u figures) string { return u.status }},
	{"CPU%", 6, 0, func(u figures) string { return text.Percent(u.cpu) }},
	{"MEM / LIMIT", 13, 0, func(u figures) string { return text.Brief(float64(u.memory)) + " / " + text.Brief(float64(u.limit)) }},
	{"MEM%", 5, 100, func(u figures) string { return text.Percent(float64(u.memory) / float64(max(1, u.limit))) }},
	{"RX/s", 5, 60, podOnly(func(u figures) string { return network(u, text.Brief(u.netRate.in)) })},
	{"TX/s", 5, 60, podOnly(func(u figures) string { return network(u, text.Brief(u.netRate.out)) })},
	{"RX", 6, 140, podOnly(func(u figures) string { return network(u, text.Brief(float64(u.net.In))) })},
	{"TX", 6, 140, podOnly(func(u figures) string { return network(u, text.Brief(float64(u.net.Out))) })},
	{"READ/s", 6, 70, podOnly(func(u figures) string { return text.Brief(u.diskRate.in) })},
	{"WRIT/s", 6, 70, podOnly(func(u figures) string { return text.Brief(u.diskRate.out) })},
	{"READ", 6, 160, podOnly(func(u figures) string { return text.Brief(float64(u.disk.In)) })},
	{"WRITTEN", 7, 160, podOnly(func(u figures) string { return text.Brief(float64(u.disk.Out)) })},
	{"PIDS", 5, 110, func(u figures) string { return strconv.Itoa(u.pids) }},
	{"RST", 3, 0, func(u figures) string { return strconv.Itoa(u.restarts) }},
}

// podOnly is for figures that are the pod's: its machine has one network and
// one set of disks.
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

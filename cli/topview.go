package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// topView is what top shows. It knows nothing of a terminal but its size.
type topView struct {
	width, height int
	colour        bool
	sort          string // "cpu", "memory" or "name"
	all           []figures
	selected      string // pod/container of the selected line; empty is the first
	note          string // why the figures are old
	now           time.Time
}

// topColumn is a column of top. All but the first have their text at the right.
type topColumn struct {
	title string
	width int
	from  int // columns of the terminal that it needs to be shown
	text  func(figures) string
}

// topColumns are shown in this order, with two spaces before each; the rest of
// the width is the names'.
var topColumns = []topColumn{
	{"STATUS", 17, 120, func(u figures) string { return u.status }},
	{"CPU%", 6, 0, func(u figures) string { return percent(u.cpu) }},
	{"MEM / LIMIT", 13, 0, func(u figures) string { return brief(float64(u.memory)) + " / " + brief(float64(u.limit)) }},
	{"MEM%", 5, 100, func(u figures) string { return percent(float64(u.memory) / float64(max(1, u.limit))) }},
	{"RX/s", 5, 60, podOnly(func(u figures) string { return network(u, brief(u.netRate.in)) })},
	{"TX/s", 5, 60, podOnly(func(u figures) string { return network(u, brief(u.netRate.out)) })},
	{"RX", 6, 140, podOnly(func(u figures) string { return network(u, brief(float64(u.net.In))) })},
	{"TX", 6, 140, podOnly(func(u figures) string { return network(u, brief(float64(u.net.Out))) })},
	{"READ/s", 6, 70, podOnly(func(u figures) string { return brief(u.diskRate.in) })},
	{"WRIT/s", 6, 70, podOnly(func(u figures) string { return brief(u.diskRate.out) })},
	{"READ", 6, 160, podOnly(func(u figures) string { return brief(float64(u.disk.In)) })},
	{"WRITTEN", 7, 160, podOnly(func(u figures) string { return brief(float64(u.disk.Out)) })},
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

// minName is the least width of the names.
const minName = 10

// columns are those that fit.
func (v topView) columns() (name int, list []topColumn) {
	name = v.width - 1 // the mark of the selected line
	for _, c := range topColumns {
		if v.width >= c.from && name-c.width-2 >= minName {
			name -= c.width + 2
			list = append(list, c)
		}
	}
	return min(name, 60), list
}

func key(u figures) string { return u.pod + "/" + u.container }

// index is the number of the selected line.
func (v topView) index() int {
	for i, u := range v.all {
		if key(u) == v.selected {
			return i
		}
	}
	return 0
}

// move selects another line.
func (v *topView) move(by int) {
	if len(v.all) > 0 {
		v.selected = key(v.all[min(max(v.index()+by, 0), len(v.all)-1)])
	}
}

// lines are the whole screen: at most height lines of at most width columns.
func (v topView) lines() []string {
	if v.height < 1 || v.width < 1 {
		return nil
	}
	name, columns := v.columns()
	out := []string{v.clip(v.summary()), v.header(name, columns)}
	room := v.height - 3
	at := v.index()
	first := min(max(0, at-room/2), max(0, len(v.all)-room))
	for i := first; i < len(v.all) && i-first < room; i++ {
		out = append(out, v.row(v.all[i], i == at, name, columns))
	}
	if len(v.all) == 0 {
		out = append(out, v.clip("no pod runs: bulkhead run FILE starts one"))
	}
	out = out[:min(len(out), max(v.height-1, 1))]
	for len(out) < v.height-1 {
		out = append(out, "")
	}
	if v.height > 1 {
		out = append(out, v.clip(v.footer()))
	}
	return out
}

func (v topView) summary() string {
	var pods, containers int
	var cpu float64
	var memory, limit int64
	for _, u := range v.all {
		if u.container != "" {
			containers++
			continue
		}
		pods++
		cpu, memory, limit = cpu+u.cpu, memory+u.memory, limit+u.limit
	}
	return fmt.Sprintf("%s  pods %d  containers %d  CPU %s%%  memory %s of %s",
		v.now.Format("15:04:05"), pods, containers, percent(cpu), size(memory), size(limit))
}

func (v topView) footer() string {
	if v.note != "" {
		return v.note
	}
	mark := func(key, what, by string) string {
		if v.sort == by {
			what = "[" + what + "]"
		}
		return key + " " + what
	}
	return strings.Join([]string{"q quit", "↑↓ select", "sort:", mark("c", "CPU", "cpu"), mark("m", "memory", "memory"), mark("n", "name", "name")}, "  ")
}

func (v topView) header(name int, columns []topColumn) string {
	line := " " + pad("POD / CONTAINER", name)
	for _, c := range columns {
		line += "  " + padLeft(c.title, c.width)
	}
	return v.paint("7", pad(v.clip(line), v.width))
}

func (v topView) row(u figures, selected bool, name int, columns []topColumn) string {
	text := u.pod
	if u.container != "" {
		text = "  " + u.container
	}
	mark := " "
	if selected {
		mark = ">"
	}
	line := mark + pad(printable(text), name)
	for _, c := range columns {
		cell := "-"
		if c.title == "STATUS" || u.live {
			cell = c.text(u)
		}
		line += "  " + padLeft(cell, c.width)
	}
	line = v.clip(line)
	switch {
	case selected && v.colour:
		return v.paint("7", pad(line, v.width))
	case u.container == "":
		return v.paint("1", line)
	}
	return strings.TrimRight(line, " ")
}

func (v topView) paint(code, line string) string {
	if !v.colour {
		return strings.TrimRight(line, " ")
	}
	return "\x1b[" + code + "m" + line + "\x1b[0m"
}

// clip cuts a line to the width; each rune of it takes one column.
func (v topView) clip(line string) string { return clip(line, v.width) }

func pad(text string, width int) string {
	text = clip(text, width)
	return text + strings.Repeat(" ", max(0, width)-utf8.RuneCountInString(text))
}

func padLeft(text string, width int) string {
	text = clip(text, width)
	return strings.Repeat(" ", max(0, width)-utf8.RuneCountInString(text)) + text
}

package top

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bulkhead-project/bulkhead/cli/internal/text"
)

// view is the content of top's screen. It knows only the size of the terminal.
type view struct {
	width, height int
	colour        bool
	sort          string // "cpu", "memory" or "name"
	all           []figures
	selected      string // pod/container of the selected line; empty means the first
	note          string // why the figures are out of date
	now           time.Time
}

// minName is the minimum width of the names.
const minName = 10

// columns returns the columns that fit.
func (v view) columns() (name int, list []column) {
	name = v.width - 1 // the column of the selection mark
	for _, c := range allColumns {
		if v.width >= c.from && name-c.width-2 >= minName {
			name -= c.width + 2
			list = append(list, c)
		}
	}
	return min(name, 60), list
}

func key(u figures) string { return u.pod + "/" + u.container }

// index returns the number of the selected line.
func (v view) index() int {
	for i, u := range v.all {
		if key(u) == v.selected {
			return i
		}
	}
	return 0
}

// move selects another line.
func (v *view) move(by int) {
	if len(v.all) > 0 {
		v.selected = key(v.all[min(max(v.index()+by, 0), len(v.all)-1)])
	}
}

// lines returns the whole screen: at most height lines of at most width columns.
func (v view) lines() []string {
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
		out = append(out, v.clip("no pods are running: start one with bulkhead run FILE"))
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

func (v view) summary() string {
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
		v.now.Format("15:04:05"), pods, containers, text.Percent(cpu), text.Size(memory), text.Size(limit))
}

func (v view) footer() string {
	if v.note != "" {
		return v.note
	}
	mark := func(key, what, by string) string {
		if v.sort == by {
			what = "[" + what + "]"
		}
		return key + " " + what
	}
	return strings.Join([]string{
		"q quit",
		"↑↓ select",
		"sort:",
		mark("c", "CPU", "cpu"),
		mark("m", "memory", "memory"),
		mark("n", "name", "name"),
	}, "  ")
}

func (v view) header(name int, columns []column) string {
	line := " " + text.Pad("POD / CONTAINER", name)
	for _, c := range columns {
		line += "  " + text.PadLeft(c.title, c.width)
	}
	if !v.colour {
		return strings.TrimRight(v.clip(line), " ")
	}
	return v.paint("7", text.Pad(v.clip(line), v.width))
}

func (v view) row(u figures, selected bool, name int, columns []column) string {
	label, mark, weight := u.pod, " ", "1"
	if u.container != "" {
		label, weight = "  "+u.container, ""
	}
	if selected {
		mark, weight = ">", "7"
	}
	line := mark + text.Pad(text.Printable(label), name)
	painted := v.paint(weight, mark) + v.paint(codes(weight, stateColour(u.status)), line[len(mark):])
	for _, c := range columns {
		cell, colour := "-", ""
		if c.title == "STATUS" || u.live {
			if cell = c.text(u); c.colour != nil {
				colour = c.colour(u)
			}
		}
		cell = text.PadLeft(cell, c.width)
		line += "  " + cell
		painted += v.paint(weight, "  ") + v.paint(codes(weight, colour), cell)
	}
	if !v.colour || utf8.RuneCountInString(line) > v.width {
		return strings.TrimRight(v.clip(line), " ")
	}
	if selected {
		painted += v.paint(weight, strings.Repeat(" ", v.width-utf8.RuneCountInString(line)))
	}
	return painted
}

// codes joins two ANSI codes. Either may be empty.
func codes(one, other string) string { return strings.Trim(one+";"+other, ";") }

// paint colours a line if the terminal shows colours and code is not empty.
func (v view) paint(code, line string) string {
	if !v.colour || code == "" {
		return line
	}
	return "\x1b[" + code + "m" + line + "\x1b[0m"
}

// clip cuts a line to the width. Each rune takes one column.
func (v view) clip(line string) string { return text.Clip(line, v.width) }

package output

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
)

// Table writes rows in aligned columns below a header. Blanks separate the titles in header. Columns describes
// narrow terminals.
func Table(w io.Writer, header string, rows [][]string) error {
	c := NewColumns(w, header, rows)
	for _, row := range append([][]string{c.titles}, rows...) {
		if err := c.Row(row); err != nil {
			return err
		}
	}
	return nil
}

// Columns writes rows one by one, at the widths of the rows it was created for. If a terminal is too narrow for all
// columns, the remaining columns continue on indented lines, and the last column is folded between words.
type Columns struct {
	w      io.Writer
	limit  int // of the terminal, 0 for none
	titles []string
	widths []int
	breaks map[int]bool // columns that start another line
}

const (
	gap    = 2  // between two columns, and before continuation lines
	folded = 30 // smallest width of a folded last column
)

// NewColumns returns columns wide enough for rows. Other rows may follow.
func NewColumns(w io.Writer, header string, rows [][]string) *Columns {
	return fit(w, tty.Width(w), header, rows)
}

func fit(w io.Writer, limit int, header string, rows [][]string) *Columns {
	c := &Columns{w: w, limit: limit, titles: strings.Fields(header), breaks: map[int]bool{}}
	for i, title := range c.titles {
		width := utf8.RuneCountInString(title)
		for _, row := range rows {
			width = max(width, utf8.RuneCountInString(row[i]))
		}
		c.widths = append(c.widths, width)
	}
	at := 0
	for i, width := range c.widths {
		if i == len(c.widths)-1 {
			width = min(width, folded)
		}
		if c.limit > 0 && i > 0 && at+width > c.limit {
			c.breaks[i], at = true, gap
		}
		at += width + gap
	}
	return c
}

// Header writes the titles.
func (c *Columns) Header() error { return c.Row(c.titles) }

// Row writes one row, with a cell for each column.
func (c *Columns) Row(cells []string) error {
	var b strings.Builder
	at := 0
	for i, cell := range cells {
		if c.breaks[i] {
			b.WriteString("\n" + strings.Repeat(" ", gap))
			at = gap
		}
		last := i == len(cells)-1
		switch {
		case last && c.limit > 0 && at+utf8.RuneCountInString(cell) > c.limit:
			b.WriteString(text.Fold(cell, c.limit, at))
		case last || c.breaks[i+1]:
			b.WriteString(cell)
		default:
			fmt.Fprintf(&b, "%-*s", c.widths[i]+gap, cell)
			at += c.widths[i] + gap
		}
	}
	b.WriteByte('\n')
	_, err := io.WriteString(c.w, b.String())
	return err
}

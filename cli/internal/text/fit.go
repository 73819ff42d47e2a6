package text

import (
	"strings"
	"unicode/utf8"
)

// Clip cuts s to so many columns.
func Clip(s string, width int) string {
	r := []rune(s)
	return string(r[:min(len(r), max(0, width))])
}

// Fold breaks text between words into lines of a terminal so wide, each after
// the first with an indentation. Width 0 breaks nothing.
func Fold(text string, width, indent int) string {
	room := width - indent
	if room < 20 {
		return text
	}
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case column+1+n > room:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

// Dash is s, or - where there is nothing.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Pad clips text to width columns, or fills it with blanks at its end.
func Pad(text string, width int) string {
	text = Clip(text, width)
	return text + strings.Repeat(" ", max(0, width)-utf8.RuneCountInString(text))
}

// PadLeft is Pad with the blanks at the beginning.
func PadLeft(text string, width int) string {
	text = Clip(text, width)
	return strings.Repeat(" ", max(0, width)-utf8.RuneCountInString(text)) + text
}

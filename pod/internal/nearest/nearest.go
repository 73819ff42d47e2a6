// Package nearest finds the word that somebody has probably meant.
package nearest

import (
	"slices"
	"strings"
)

// Suggest is a message's end that names what of known is probably meant by word; empty
// for nothing. It sorts known.
func Suggest(word string, known []string) string {
	if len(word) > maxWord {
		return ""
	}
	slices.Sort(known)
	best, least := "", 1+min(len(word)/3, 3) // so many slips may be in a word
	for _, name := range known {
		if n := distance(strings.ToLower(word), strings.ToLower(name)); n < least || n == 0 && best == "" {
			best, least = name, n
		}
	}
	if best == "" {
		return ""
	}
	return "; do you mean " + best + "?"
}

// maxWord is the longest word that is looked at, in bytes: no field's name is longer.
const maxWord = 64

// distance is how many letters must be put in, left out, changed, or exchanged
// with the next one, to make one word of the other.
func distance(a, b string) int {
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

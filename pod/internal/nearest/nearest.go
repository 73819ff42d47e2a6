// Package nearest finds the known word that a misspelt word most likely stands for.
package nearest

import (
	"slices"
	"strings"
)

// Suggest returns the end of a message that names the word in known nearest to word, empty if none is near. It sorts
// known.
func Suggest(word string, known []string) string {
	if len(word) > maxWord {
		return ""
	}
	slices.Sort(known)
	best, least := "", 1+min(len(word)/3, 3) // the number of allowed errors
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

// maxWord is the longest word to check, in bytes. Names of fields are shorter.
const maxWord = 64

// distance returns how many letters must be inserted, deleted, replaced, or swapped with the next one to turn a into b.
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

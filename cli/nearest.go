package cli

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// meantFlag returns the existing flag that is most similar to the unknown flag in err, with its dashes. It is empty
// if none is similar.
func meantFlag(cmd *cobra.Command, err error) string {
	unknown := (*pflag.NotExistError)(nil)
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	typed, best, least := unknown.GetSpecifiedName(), "", 3
	try := func(f *pflag.Flag) {
		if d := distance(typed, f.Name); d < least && d < len(typed) && !f.Hidden {
			best, least = "--"+f.Name, d
		}
	}
	cmd.Flags().VisitAll(try)
	cmd.InheritedFlags().VisitAll(try)
	return best
}

// distance returns the edit distance of two words: the number of letters to change, add and remove.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for i := range row {
		row[i] = i
	}
	for i := range len(a) {
		next := []int{i + 1}
		for j := range len(b) {
			change := row[j]
			if a[i] != b[j] {
				change++
			}
			next = append(next, slices.Min([]int{change, row[j+1] + 1, next[j] + 1}))
		}
		row = next
	}
	return row[len(b)]
}

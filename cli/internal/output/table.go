package output

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table writes rows in aligned columns under a header.
func Table(w io.Writer, header string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, strings.ReplaceAll(header, " ", "\t"))
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

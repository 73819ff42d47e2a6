package output

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestColumns: columns that do not fit continue on further lines, the same columns in each row. The last column is
// folded.
func TestColumns(t *testing.T) {
	rows := [][]string{
		{"web", "Running", "127.0.0.1:8080->80", "the first word and many more that follow it"},
		{"db-with-a-name", "Error", "-", "-"},
	}
	for _, tc := range []struct {
		limit int
		want  string
	}{
		{0, `
NAME            STATUS   PORTS               MESSAGE
web             Running  127.0.0.1:8080->80  the first word and many more that follow it
db-with-a-name  Error    -                   -
`},
		{80, `
NAME            STATUS   PORTS               MESSAGE
web             Running  127.0.0.1:8080->80  the first word and many more that
                                             follow it
db-with-a-name  Error    -                   -
`},
		{60, `
NAME            STATUS   PORTS
  MESSAGE
web             Running  127.0.0.1:8080->80
  the first word and many more that follow it
db-with-a-name  Error    -
  -
`},
		{40, `
NAME            STATUS
  PORTS
  MESSAGE
web             Running
  127.0.0.1:8080->80
  the first word and many more that
  follow it
db-with-a-name  Error
  -
  -
`},
	} {
		var out bytes.Buffer
		out.WriteByte('\n')
		c := fit(&out, tc.limit, "NAME STATUS PORTS MESSAGE", rows)
		for _, row := range append([][]string{c.titles}, rows...) {
			if err := c.Row(row); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(tc.want, out.String()); diff != "" {
			t.Errorf("%d columns: %s", tc.limit, diff)
		}
	}
}

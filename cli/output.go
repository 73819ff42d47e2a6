package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// format is the -o flag of a command that lists or shows.
type format string

func (f *format) add(cmd *cobra.Command) { f.addAs(cmd, "json, yaml or jsonpath=TEMPLATE") }

// addList is add for a command that lists things with names.
func (f *format) addList(cmd *cobra.Command) {
	f.addAs(cmd, "json, yaml, wide, name or jsonpath=TEMPLATE (a list is .items)")
}

func (f *format) addAs(cmd *cobra.Command, formats string) {
	cmd.Flags().StringVarP((*string)(f), "output", "o", string(*f), "output format: "+formats)
}

// jsonPath begins a format that is a template, in kubectl's language.
const jsonPath = "jsonpath="

// valid says early whether print knows the format.
func (f format) valid() error {
	switch f {
	case "", "json", "yaml":
		return nil
	}
	if strings.HasPrefix(string(f), jsonPath) {
		return nil
	}
	return fmt.Errorf("unknown output format %q: use json, yaml or jsonpath=TEMPLATE", string(f))
}

// views are what a command shows besides JSON and YAML; wide and names may be
// nil.
type views struct {
	table, wide func(io.Writer) error
	names       func() []string
}

// show prints v in a format.
func (a *app) show(ctx context.Context, f format, v any, as views) error {
	template, isPath := strings.CutPrefix(string(f), jsonPath)
	switch {
	case f == "wide" && as.wide != nil:
		return as.wide(a.out)
	case f == "name" && as.names != nil:
		for _, name := range as.names() {
			fmt.Fprintln(a.out, name)
		}
		return nil
	case isPath:
		return a.fillIn(ctx, template, v)
	case as.names != nil && f.valid() != nil:
		return fmt.Errorf("unknown output format %q: use json, yaml, wide, name or jsonpath=TEMPLATE", string(f))
	}
	return f.print(a.out, v, as.table)
}

// fillIn has the engine fill a template in: its language is a Kubernetes
// library's, which would not be carried for it here. A list is the field items,
// as kubectl has it.
func (a *app) fillIn(ctx context.Context, template string, v any) error {
	if reflect.ValueOf(v).Kind() == reflect.Slice {
		v = map[string]any{"items": v}
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	var text api.JSONPathResult
	req := api.JSONPathRequest{Template: template, Value: raw}
	if err := a.client.Call(ctx, "POST", "/v1/jsonpath", nil, req, &text); err != nil {
		return err
	}
	_, err = io.WriteString(a.out, text.Text)
	return err
}

// print writes v as JSON or YAML, or by table when no format was asked for.
func (f format) print(w io.Writer, v any, table func(io.Writer) error) error {
	switch f {
	case "":
		return table(w)
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	case "yaml":
		b, err := yaml.Marshal(v)
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
		_, err = w.Write(b)
		return err
	}
	return f.valid()
}

// colours says whether w is a terminal that may be coloured (no-color.org).
func colours(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w)
}

// terminalWidth is the number of columns of a terminal, 0 for anything else.
func terminalWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return 0
}

// isTerminal looks at a file of any use; what is no file is no terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// table writes rows in aligned columns under a header.
func table(w io.Writer, header string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, strings.ReplaceAll(header, " ", "\t"))
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// age prints a duration as kubectl does: one or two units.
func age(since time.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	d := time.Since(since)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// size prints bytes in the unit that keeps it short, powers of 1000 as podman.
func size(n int64) string {
	const units = "kMGT"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	f, u := float64(n)/1000, 0
	for f >= 999.5 && u < len(units)-1 {
		f, u = f/1000, u+1
	}
	return fmt.Sprintf("%.3g %cB", f, units[u])
}

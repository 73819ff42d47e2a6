package pod

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Events is the command events.
func Events(a *app.App) *cobra.Command {
	var f output.Format
	var watch bool
	cmd := &cobra.Command{
		Use:   "events [POD]",
		Short: "Show the events of a pod, or of all pods",
		Long: `Show the events of a pod, or of all pods, the newest last: pulls, starts, ends, restarts,
failures. A repeated event is one line with a count. The last 256 events of each pod are
kept until the pod is removed.`,
		Example: `  bulkhead events web
  bulkhead events -w
  bulkhead events web -o json`,
		Args: app.AtMost("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.Valid(); err != nil {
				return err
			}
			path := "/v1/events"
			if len(args) == 1 {
				path = a.PodPath(args[0], "events")
			}
			list := []api.Event{}
			if watch && strings.HasPrefix(string(f), output.JSONPath) {
				return errors.New("-w prints a table, json or yaml")
			}
			p := eventPrinter{w: a.Out, format: f}
			q := url.Values{"watch": {strconv.FormatBool(watch)}}
			err := a.Client.Stream(cmd.Context(), "GET", path, q, nil, func(m api.Message) error {
				switch {
				case m.Event == nil:
					return nil
				case watch:
					return p.print(*m.Event)
				}
				list = append(list, *m.Event)
				return nil
			})
			if err != nil || watch {
				return err
			}
			return a.Show(cmd.Context(), f, list, output.Views{Table: func(w io.Writer) error {
				var rows [][]string
				for _, e := range list {
					rows = append(rows, eventRow(e))
				}
				return output.Table(w, eventHeader, rows)
			}})
		},
	}
	f.Add(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "keep printing new events")
	cmd.Flags().BoolVarP(&watch, "follow", "f", false, "same as --watch")
	return cmd
}

const eventHeader = "SEEN TYPE REASON POD CONTAINER MESSAGE"

func eventRow(e api.Event) []string {
	seen := text.Age(e.LastTimestamp)
	if e.Count > 1 {
		seen = fmt.Sprintf("%s (x%d over %s)", seen, e.Count, text.Age(e.FirstTimestamp))
	}
	_, container, _ := strings.Cut(strings.TrimSuffix(e.InvolvedObject.FieldPath, "}"), "{")
	return []string{seen, e.Type, e.Reason, e.InvolvedObject.Name, text.Dash(container), text.Printable(text.Plain(e.Message))}
}

// eventWidths has the column widths for events that have not arrived yet.
var eventWidths = []string{"100s", "Warning", "CrashLoopBackOff", "a-pod-with-a-name", "a-container", ""}

// eventPrinter prints events one by one.
type eventPrinter struct {
	w       io.Writer
	format  output.Format
	columns *output.Columns
	begun   bool
}

func (p *eventPrinter) print(e api.Event) error {
	first := !p.begun
	p.begun = true
	if p.format != "" {
		if p.format == "yaml" && !first {
			fmt.Fprintln(p.w, "---")
		}
		return p.format.Print(p.w, e, nil)
	}
	if first {
		p.columns = output.NewColumns(p.w, eventHeader, [][]string{eventWidths})
		if err := p.columns.Header(); err != nil {
			return err
		}
	}
	return p.columns.Row(eventRow(e))
}

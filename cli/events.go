package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func (a *app) eventsCmd() *cobra.Command {
	var f format
	var watch bool
	cmd := &cobra.Command{
		Use:   "events [POD]",
		Short: "Show what happened to a pod, or to all: the newest last",
		Long: `Show what happened to a pod, or to all of them, the newest last: pulls, starts, ends,
restarts, failures. What happened several times is one line with its count. The last
256 of each pod are kept until the pod is removed.`,
		Example: `  bulkhead events web
  bulkhead events -w
  bulkhead events web -o json`,
		Args: atMost("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.valid(); err != nil {
				return err
			}
			path := "/v1/events"
			if len(args) == 1 {
				path = podPath(args[0], "events")
			}
			list := []api.Event{}
			if watch && strings.HasPrefix(string(f), jsonPath) {
				return errors.New("-w prints a table, json or yaml")
			}
			p := eventPrinter{w: a.out, format: f}
			q := url.Values{"watch": {strconv.FormatBool(watch)}}
			err := a.client.Stream(cmd.Context(), "GET", path, q, nil, func(m api.Message) error {
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
			return a.show(cmd.Context(), f, list, views{table: func(w io.Writer) error {
				var rows [][]string
				for _, e := range list {
					rows = append(rows, eventRow(e))
				}
				return table(w, strings.Join(eventHeader, " "), rows)
			}})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on with what happens next")
	cmd.Flags().BoolVarP(&watch, "follow", "f", false, "the same")
	return cmd
}

var eventHeader = []string{"SEEN", "TYPE", "REASON", "POD", "CONTAINER", "MESSAGE"}

func eventRow(e api.Event) []string {
	seen := age(e.LastTimestamp)
	if e.Count > 1 {
		seen = fmt.Sprintf("%s (x%d over %s)", seen, e.Count, age(e.FirstTimestamp))
	}
	_, container, _ := strings.Cut(strings.TrimSuffix(e.InvolvedObject.FieldPath, "}"), "{")
	return []string{seen, e.Type, e.Reason, e.InvolvedObject.Name, dash(container), printable(plain(e.Message))}
}

// eventPrinter prints events one by one, in columns of fixed width.
type eventPrinter struct {
	w      io.Writer
	format format
	begun  bool
}

func (p *eventPrinter) print(e api.Event) error {
	const columns = "%-20s  %-7s  %-16s  %-16s  %-12s  %s\n"
	if p.format != "" {
		if p.format == "yaml" && p.begun {
			fmt.Fprintln(p.w, "---")
		}
		p.begun = true
		return p.format.print(p.w, e, nil)
	}
	row := [6]any{}
	for i, text := range eventRow(e) {
		row[i] = text
	}
	var headed error
	if !p.begun {
		header := [6]any{}
		for i, text := range eventHeader {
			header[i] = text
		}
		_, headed = fmt.Fprintf(p.w, columns, header[:]...)
		p.begun = true
	}
	_, err := fmt.Fprintf(p.w, columns, row[:]...)
	return errors.Join(headed, err)
}

package pod

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Describe is the command describe.
func Describe(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "describe POD…",
		Short: "Show details of pods: containers, conditions, events",
		Example: `  bulkhead describe web
  bulkhead describe web db`,
		Args: app.AtLeast("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for i, ref := range args {
				var p described
				if err := a.Client.Call(cmd.Context(), "GET", a.PodPath(ref, ""), nil, nil, &p); err != nil {
					return err
				}
				var events []api.Event
				err := a.Client.Stream(cmd.Context(), "GET", a.PodPath(p.Metadata.UID, "events"), nil, nil, func(m api.Message) error {
					if m.Event != nil {
						events = append(events, *m.Event)
					}
					return nil
				})
				if err != nil {
					return err
				}
				if i > 0 {
					fmt.Fprintln(a.Out)
				}
				if err := p.print(a.Out, events); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// described has the fields of a Pod that describe prints. The API's types would make the command line much larger.
type described struct {
	Metadata struct {
		Name, Namespace, UID string
		CreationTimestamp    time.Time
		Labels, Annotations  map[string]string
	}
	Spec struct {
		InitContainers, Containers, EphemeralContainers []describedContainer
		Volumes                                         []map[string]json.RawMessage
		RestartPolicy                                   string
	}
	Status struct {
		Phase, Reason, Message, PodIP, QOSClass                              string
		InitContainerStatuses, ContainerStatuses, EphemeralContainerStatuses []describedStatus
		Conditions                                                           []struct{ Type, Status, Reason, Message string }
	}
}

// print writes the description in the order of kubectl.
func (p described) print(w io.Writer, events []api.Event) error {
	d := &describer{w: w}
	d.line("Name", p.Metadata.Name)
	d.line("Namespace", p.Metadata.Namespace)
	d.line("UID", p.Metadata.UID)
	d.line("Created", stamp(p.Metadata.CreationTimestamp))
	d.pairs("Labels", p.Metadata.Labels)
	d.pairs("Annotations", p.Metadata.Annotations)
	d.line("Status", p.Status.Phase)
	d.line("Reason", p.Status.Reason)
	d.line("Message", p.Status.Message)
	d.line("IP", p.Status.PodIP)
	d.line("QoS Class", p.Status.QOSClass)
	d.line("Restart Policy", p.Spec.RestartPolicy)
	d.containers("Init Containers", p.Spec.InitContainers, p.Status.InitContainerStatuses)
	d.containers("Containers", p.Spec.Containers, p.Status.ContainerStatuses)
	d.containers("Ephemeral Containers", p.Spec.EphemeralContainers, p.Status.EphemeralContainerStatuses)
	d.section("Conditions", func(d *describer) {
		for _, c := range p.Status.Conditions {
			d.line(c.Type, strings.TrimSpace(c.Status+"  "+c.Reason+"  "+c.Message))
		}
	})
	d.section("Volumes", func(d *describer) {
		for _, v := range p.Spec.Volumes {
			var name string
			_ = json.Unmarshal(v["name"], &name) // a volume without a name is printed without one
			delete(v, "name")
			for _, kind := range slices.Sorted(maps.Keys(v)) {
				d.line(name, kind+" "+string(v[kind]))
			}
		}
	})
	if len(events) == 0 {
		d.line("Events", "<none>")
	}
	if d.err != nil || len(events) == 0 {
		return d.err
	}
	d.printf("Events:\n")
	var rows [][]string
	for _, e := range events {
		row := eventRow(e)
		rows = append(rows, append(row[:3:3], row[4:]...)) // without the pod
	}
	return output.Table(w, "SEEN TYPE REASON CONTAINER MESSAGE", rows)
}

// describer writes indented lines of a name and a value.
type describer struct {
	w      io.Writer
	indent int
	err    error // the first write error
}

// valueColumn is the column where values begin, unless the name is longer.
const valueColumn = 18

func (d *describer) printf(format string, args ...any) {
	_, err := fmt.Fprintf(d.w, strings.Repeat(" ", d.indent)+format, args...)
	d.err = cmp.Or(d.err, err)
}

// line prints nothing for an empty value.
func (d *describer) line(name, value string) {
	if value = text.Printable(text.Plain(value)); value != "" {
		d.printf("%-*s %s\n", max(valueColumn-d.indent, 12), name+":", value)
	}
}

// pairs prints one line for each pair, with the name before the first one.
func (d *describer) pairs(name string, of map[string]string) {
	for i, key := range slices.Sorted(maps.Keys(of)) {
		if i == 0 {
			d.line(name, key+"="+of[key])
		} else {
			d.printf("%-*s %s\n", max(valueColumn-d.indent, 12), "", text.Printable(text.Plain(key+"="+of[key])))
		}
	}
}

// section prints a title above the output of body, and nothing if that output is empty.
func (d *describer) section(title string, body func(*describer)) {
	var inner strings.Builder
	body(&describer{w: &inner, indent: d.indent + 2})
	if inner.Len() > 0 {
		d.printf("%s:\n", title)
		_, err := io.WriteString(d.w, inner.String())
		d.err = cmp.Or(d.err, err)
	}
}

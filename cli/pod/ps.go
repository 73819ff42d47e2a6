// Package pod has the commands that show, stop and change pods.
package pod

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

// Ps is the command ps.
func Ps(a *app.App) *cobra.Command {
	var f output.Format
	var t app.Targets
	var quiet, every, watch bool
	var format string
	var filter []string
	cmd := &cobra.Command{
		Use:        "ps",
		Aliases:    []string{"ls", "list"},
		SuggestFor: []string{"get"},
		Short:      "List pods, including ended ones",
		Long: `List pods, including ended ones.

STATUS is as in kubectl: the pod's phase, or the reason why a container waits or has failed. Two
more values exist. Stopped: bulkhead stop or a signal ended the containers. VMKilled: the VM was
killed.`,
		Example: `  bulkhead ps
  bulkhead ps -A
  bulkhead ps -l app=web,tier!=front -n test
  bulkhead ps -w
  bulkhead ps -o wide
  bulkhead ps -f status=running --format '{{.Name}} {{.Status}}'
  bulkhead ps -o jsonpath='{range .items[*]}{.name} {.ip}{"\n"}{end}'
  bulkhead ps -o jsonpath='{.items[*].metadata.name}'`,
		Args: app.AtMost(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch && (quiet || every) {
				return errors.New("-w cannot be used with -q or -A")
			}
			chosen, err := parseFilters(filter)
			if err != nil {
				return err
			}
			if watch && (format != "" || len(filter) > 0) {
				return errors.New("-w cannot be used with --format or --filter")
			}
			q := url.Values{"all": {strconv.FormatBool(every)}, "selector": {t.Selector}}
			pods, err := a.Pods(cmd.Context(), q)
			pods = slices.DeleteFunc(pods, func(p api.Pod) bool { return !chosen.match(p) })
			switch {
			case err != nil:
				return err
			case watch:
				return psWatch(cmd.Context(), a, q, f, pods)
			case quiet:
				for _, p := range pods {
					fmt.Fprintln(a.Out, p.Name)
				}
				return nil
			}
			if format != "" {
				return a.ShowRows(cmd.Context(), format, psRows(pods))
			}
			shown, err := withPods(cmd.Context(), a, f, pods)
			if err != nil {
				return err
			}
			return a.Show(cmd.Context(), f, shown, output.Views{
				Table: func(w io.Writer) error { return psTable(w, pods, false) },
				Wide:  func(w io.Writer) error { return psTable(w, pods, true) },
				Names: func() []string { return podNames(pods) },
			})
		},
	}
	f.AddList(cmd)
	t.Add(cmd)
	a.AddNamespace(cmd)
	cmd.Flags().StringArrayVarP(&filter, "filter", "f", nil,
		"list only pods with this name=, id=, status=, label= or namespace= (repeatable)")
	cmd.Flags().StringVar(&format, "format", "", "Go template for each pod, such as {{.Name}}; json prints the whole list")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only names")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "keep printing pods that change, until Ctrl-C")
	cmd.Flags().BoolVarP(&every, "all-instances", "A", false, "list the pods of every instance, also of bulkhead cri and bulkhead node")
	cmd.Flags().BoolP("all", "a", false, "accepted for podman users; ended pods are always listed")
	return cmd
}

// podNames returns names that other commands accept: pod/NAME, or NAMESPACE/NAME outside the namespace default.
func podNames(pods []api.Pod) []string {
	var names []string
	for _, p := range pods {
		if p.Namespace == "default" {
			names = append(names, "pod/"+p.Name)
		} else {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	return names
}

// psView selects the columns of ps. Without wide, the table fits 80 columns if names are short. The namespace
// column appears only if a pod is outside the namespace default.
type psView struct{ wide, namespaces, instances bool }

func newPsView(pods []api.Pod, wide bool) psView {
	v := psView{wide: wide, namespaces: wide}
	for _, p := range pods {
		v.namespaces = v.namespaces || p.Namespace != "default"
		v.instances = v.instances || p.Instance != ""
	}
	return v
}

func (v psView) header() string {
	header := "NAME READY STATUS RESTARTS AGE PORTS ACCEL UID"
	if v.namespaces {
		header = "NAMESPACE " + header
	}
	if v.wide {
		header += " IP SANDBOX LABELS"
	}
	if v.instances {
		header = "INSTANCE " + header
	}
	return header
}

func (v psView) row(p api.Pod) []string {
	row := []string{
		p.Name, fmt.Sprintf("%d/%d", p.Ready, p.Containers), p.Status, strconv.Itoa(p.Restarts),
		text.Age(p.Created), text.Dash(strings.Join(p.Ports, ",")), text.Dash(p.Accel), shortid.Of(p.UID),
	}
	if v.wide {
		row = append(row, text.Dash(p.IP), text.Dash(shortid.Of(p.Sandbox)), text.Dash(labels(p.Labels)))
	}
	if v.namespaces {
		row = append([]string{p.Namespace}, row...)
	}
	if v.instances {
		row = append([]string{p.Instance}, row...)
	}
	return row
}

func (v psView) rows(pods []api.Pod) (rows [][]string) {
	for _, p := range pods {
		rows = append(rows, v.row(p))
	}
	return rows
}

func psTable(w io.Writer, pods []api.Pod, wide bool) error {
	v := newPsView(pods, wide)
	return output.Table(w, v.header(), v.rows(pods))
}

func labels(of map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		list = append(list, key+"="+of[key])
	}
	return strings.Join(list, ",")
}

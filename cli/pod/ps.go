// Package pod has the commands that show, end and change pods.
package pod

import (
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
)

// Ps is the command ps.
func Ps(a *app.App) *cobra.Command {
	var f output.Format
	var quiet, every bool
	cmd := &cobra.Command{
		Use:        "ps",
		Aliases:    []string{"ls", "list"},
		SuggestFor: []string{"get"},
		Short:      "List the pods, ended ones included",
		Example: `  bulkhead ps
  bulkhead ps -A
  bulkhead ps -o wide
  bulkhead ps -o jsonpath='{range .items[*]}{.name} {.ip}{"\n"}{end}'`,
		Args: app.AtMost(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			pods := []api.Pod{}
			q := url.Values{"all": {strconv.FormatBool(every)}}
			if err := a.Client.Call(cmd.Context(), "GET", "/v1/pods", q, nil, &pods); err != nil {
				return err
			}
			if quiet {
				for _, p := range pods {
					fmt.Fprintln(a.Out, p.Name)
				}
				return nil
			}
			return a.Show(cmd.Context(), f, pods, output.Views{
				Table: func(w io.Writer) error { return psTable(w, pods, false) },
				Wide:  func(w io.Writer) error { return psTable(w, pods, true) },
				Names: func() []string { return podNames(pods) },
			})
		},
	}
	f.AddList(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "names only")
	cmd.Flags().BoolVarP(&every, "all-instances", "A", false, "the pods of every instance: those of a kubelet and a node, too")
	cmd.Flags().BoolP("all", "a", false, "for who is used to podman: ended pods are listed always")
	return cmd
}

// podNames are what other commands take for pods: pod/NAME, or NAMESPACE/NAME
// outside the default one.
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

// psTable fits 80 columns as long as names are short, unless it is to be wide:
// the namespace is shown only where a pod has another than the default one.
func psTable(w io.Writer, pods []api.Pod, wide bool) error {
	header, namespaces := "NAME READY STATUS RESTARTS AGE PORTS ACCEL UID", wide
	for _, p := range pods {
		namespaces = namespaces || p.Namespace != "default"
	}
	if namespaces {
		header = "NAMESPACE " + header
	}
	if wide {
		header += " IP SANDBOX LABELS"
	}
	instances := slices.ContainsFunc(pods, func(p api.Pod) bool { return p.Instance != "" })
	if instances {
		header = "INSTANCE " + header
	}
	var rows [][]string
	for _, p := range pods {
		row := []string{
			p.Name, fmt.Sprintf("%d/%d", p.Ready, p.Containers), p.Status, strconv.Itoa(p.Restarts),
			text.Age(p.Created), text.Dash(strings.Join(p.Ports, ",")), text.Dash(p.Accel), text.Short(p.UID),
		}
		if wide {
			row = append(row, text.Dash(p.IP), text.Dash(text.Short(p.Sandbox)), text.Dash(labels(p.Labels)))
		}
		if namespaces {
			row = append([]string{p.Namespace}, row...)
		}
		if instances {
			row = append([]string{p.Instance}, row...)
		}
		rows = append(rows, row)
	}
	return output.Table(w, header, rows)
}

func labels(of map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		list = append(list, key+"="+of[key])
	}
	return strings.Join(list, ",")
}

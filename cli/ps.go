package cli

import (
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/supervisor/api"
)

func (a *app) psCmd() *cobra.Command {
	var f format
	var quiet, all bool
	cmd := &cobra.Command{
		Use:     "ps",
		Aliases: []string{"ls", "list"},
		Short:   "List the pods, ended ones included",
		Example: `  bulkhead ps
  bulkhead ps -A
  bulkhead ps -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pods := []api.Pod{}
			q := url.Values{"all": {strconv.FormatBool(all)}}
			if err := a.client.Call(cmd.Context(), "GET", "/v1/pods", q, nil, &pods); err != nil {
				return err
			}
			if quiet {
				for _, p := range pods {
					fmt.Fprintln(a.out, p.Name)
				}
				return nil
			}
			return f.print(a.out, pods, func(w io.Writer) error { return psTable(w, pods) })
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "names only")
	cmd.Flags().BoolVarP(&all, "all", "A", false, "the pods of every instance: those of a kubelet and a node, too")
	return cmd
}

// psTable fits 80 columns as long as names are short: the namespace is shown
// only where a pod has another than the default one.
func psTable(w io.Writer, pods []api.Pod) error {
	header, namespaces := "NAME READY STATUS RESTARTS AGE PORTS ACCEL UID", false
	for _, p := range pods {
		namespaces = namespaces || p.Namespace != "default"
	}
	if namespaces {
		header = "NAMESPACE " + header
	}
	instances := slices.ContainsFunc(pods, func(p api.Pod) bool { return p.Instance != "" })
	if instances {
		header = "INSTANCE " + header
	}
	var rows [][]string
	for _, p := range pods {
		row := []string{
			p.Name, fmt.Sprintf("%d/%d", p.Ready, p.Containers), p.Status, strconv.Itoa(p.Restarts),
			age(p.Created), dash(strings.Join(p.Ports, ",")), dash(p.Accel), short(p.UID),
		}
		if namespaces {
			row = append([]string{p.Namespace}, row...)
		}
		if instances {
			row = append([]string{p.Instance}, row...)
		}
		rows = append(rows, row)
	}
	return table(w, header, rows)
}

func short(id string) string { return id[:min(len(id), 12)] }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

package cli

import (
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/supervisor/api"
)

func (a *app) logsCmd() *cobra.Command {
	var opts api.LogOptions
	cmd := &cobra.Command{
		Use:   "logs POD",
		Short: "Print what a pod's containers have written",
		Example: `  bulkhead logs web
  bulkhead logs -f -c sidecar web`,
		Args: exactly("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{"container": {opts.Container}, "follow": {strconv.FormatBool(opts.Follow)}}
			p := newPrinter(a.out, a.err)
			defer p.flush()
			return a.client.Stream(cmd.Context(), "GET", podPath(args[0], "logs"), q, nil, func(m api.Message) error {
				if m.Started != nil {
					p.add(m.Started.Pod.Name, m.Started.Containers)
				}
				if m.Log != nil {
					return p.print(*m.Log)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&opts.Container, "container", "c", "", "only this container")
	cmd.Flags().BoolVarP(&opts.Follow, "follow", "f", false, "go on until the pod ends")
	return cmd
}

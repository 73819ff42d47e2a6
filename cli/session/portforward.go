package session

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// PortForward is the command port-forward.
func PortForward(a *app.App) *cobra.Command {
	var addresses []string
	cmd := &cobra.Command{
		Use:   "port-forward POD [LOCAL:]REMOTE…",
		Short: "Forward local ports to a pod",
		Long: `Forward local TCP ports to ports of a pod, until Ctrl-C or the pod's end. REMOTE is a
number or the name of a container's port. Without LOCAL the local port has the same
number, and with an empty LOCAL (:80) it is any free port. Programs in the pod may listen
on loopback only.`,
		Example: `  bulkhead port-forward web 8080:80
  bulkhead port-forward web :http
  bulkhead port-forward --address 0.0.0.0 web 8080:80 5432`,
		Args: app.AtLeast("POD", "[LOCAL:]REMOTE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ports, err := parseForwards(args[1:])
			if err != nil {
				return err
			}
			hosts, err := parseAddresses(addresses)
			if err != nil {
				return err
			}
			return (&forwarder{app: a, ref: args[0], ports: ports, hosts: hosts}).run(cmd.Context())
		},
	}
	cmd.Flags().StringSliceVar(&addresses, "address", []string{"localhost"}, "addresses to listen on: localhost or IP addresses")
	return cmd
}

// forwardedPort is one argument of port-forward.
type forwardedPort struct {
	local  int    // 0 means any port; -1 means the number of remote
	remote string // number or name
	number int    // the number of remote, from the engine
}

func parseForwards(args []string) ([]forwardedPort, error) {
	var ports []forwardedPort
	for _, arg := range args {
		p := forwardedPort{local: -1, remote: arg}
		if local, remote, both := strings.Cut(arg, ":"); both {
			p.local, p.remote = 0, remote
			if local != "" {
				n, err := strconv.ParseUint(local, 10, 16)
				if err != nil {
					return nil, fmt.Errorf("%q: local port %q: must be a number up to 65535, or empty for any", arg, local)
				}
				p.local = int(n)
			}
		}
		if p.remote == "" || strings.Contains(p.remote, ":") {
			return nil, fmt.Errorf("%q: must be [LOCAL:]REMOTE, such as 8080:80", arg)
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// host is an address to listen on.
type host struct {
	ip       string
	optional bool // the IPv6 address of localhost
}

func parseAddresses(list []string) ([]host, error) {
	var hosts []host
	for _, text := range list {
		switch {
		case text == "localhost":
			hosts = append(hosts, host{ip: "127.0.0.1"}, host{"::1", true})
		case net.ParseIP(text) != nil:
			hosts = append(hosts, host{ip: text})
		default:
			return nil, fmt.Errorf("--address %q: must be localhost or an IP address", text)
		}
	}
	return hosts, nil
}

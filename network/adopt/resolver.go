package adopt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Docker has a name server at 127.0.0.11 in the namespaces of its own networks. It asks other name servers from there,
// so their answers must reach the namespace's network stack. Its sockets get ports that no guest uses by itself, and
// only packets from name servers to these ports are exempt from the redirection.
const (
	resolverHex   = "0B00007F" // 127.0.0.11, as in /proc/net/udp
	resolverPorts = "61440\t65535\n"
	portRange     = "/proc/sys/net/ipv4/ip_local_port_range"
	defaultPorts  = "32768\t60999\n" // the kernel's
)

// The priorities of the exemptions: before the redirection.
const (
	answersFirst = 1
	arpFirst     = 2
)

// hasResolver reports whether docker's name server is in the calling thread's namespace.
func hasResolver() (bool, error) {
	table, err := os.ReadFile("/proc/thread-self/net/udp")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list the sockets: %w", err)
	}
	return strings.Contains(string(table), " "+resolverHex+":"), nil
}

// exempt lets the answers of other name servers pass to the namespace's network stack. It copies the answers of neighbours
// there, too: without these, the stack reaches no server. number is the card of the interface, which is joined.
func exempt(eth netlink.Link, number int) error {
	tap, err := netlink.LinkByName(TapName(number))
	if err != nil {
		return fmt.Errorf("find the VM's tap: %w", err)
	}
	if err := setPorts(resolverPorts); err != nil {
		return err
	}
	there, err := filters(eth)
	if err != nil {
		return err
	}
	for _, f := range there {
		if mirrors(f, tap.Attrs().Index) { // the last one that is added
			return nil
		}
	}
	if err := removeExemptions(eth); err != nil { // of an earlier tap
		return err
	}
	for _, protocol := range []uint32{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		// A filter without an action lets the packet pass.
		answers := &netlink.U32{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: eth.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: answersFirst, Protocol: unix.ETH_P_IP,
			},
			Sel: &netlink.TcU32Sel{Flags: nl.TC_U32_TERMINAL, Nkeys: 3, Keys: []netlink.TcU32Key{
				{Off: 0, Val: 0x45000000, Mask: 0xff000000}, // a header of 20 bytes
				{Off: 8, Val: protocol << 16, Mask: 0x00ff0000},
				{Off: 20, Val: 53<<16 | 0xf000, Mask: 0xfffff000}, // from port 53 to 61440 and above
			}},
		}
		if err := netlink.FilterAdd(answers); err != nil {
			return fmt.Errorf("exempt answers of name servers: %w", err)
		}
	}
	mirror := netlink.NewMirredAction(tap.Attrs().Index)
	mirror.MirredAction, mirror.Action = netlink.TCA_EGRESS_MIRROR, netlink.TC_ACT_PIPE
	neighbours := &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: eth.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: arpFirst, Protocol: unix.ETH_P_ARP,
		},
		Actions: []netlink.Action{mirror},
	}
	if err := netlink.FilterAdd(neighbours); err != nil {
		return fmt.Errorf("exempt answers of neighbours: %w", err)
	}
	return nil
}

// unexempt undoes exempt for an interface.
func unexempt(eth netlink.Link) error {
	there, err := filters(eth)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(there, func(f netlink.Filter) bool { return mirrors(f, 0) }) {
		return nil
	}
	if err := removeExemptions(eth); err != nil {
		return err
	}
	return setPorts(defaultPorts)
}

// mirrors reports whether a filter is the one that exempts the answers of neighbours, and copies them to a tap; 0 means
// any tap.
func mirrors(f netlink.Filter, tap int) bool {
	u, ok := f.(*netlink.U32)
	if !ok || u.Priority != arpFirst || len(u.Actions) != 1 {
		return false
	}
	action, ok := u.Actions[0].(*netlink.MirredAction)
	return ok && action.MirredAction == netlink.TCA_EGRESS_MIRROR && (tap == 0 || action.Ifindex == tap)
}

func removeExemptions(eth netlink.Link) error {
	for priority, protocol := range map[uint16]uint16{answersFirst: unix.ETH_P_IP, arpFirst: unix.ETH_P_ARP} {
		table := &netlink.U32{FilterAttrs: netlink.FilterAttrs{
			LinkIndex: eth.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: priority, Protocol: protocol,
		}}
		if err := netlink.FilterDel(table); err != nil && !gone(err) {
			return fmt.Errorf("remove the exemptions of %s: %w", eth.Attrs().Name, err)
		}
	}
	return nil
}

// setPorts sets the range of the ports that the kernel chooses. It changes nothing if the namespace has a range of a
// client's choice, or if the caller may not change it: then only names outside the namespace are not found.
func setPorts(to string) error {
	now, err := os.ReadFile(portRange)
	if err == nil && (string(now) == resolverPorts || string(now) == defaultPorts) && string(now) != to {
		err = os.WriteFile(portRange, []byte(to), 0)
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("set the range of ports: %w", err)
	}
	return nil
}

package network

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// Port is a port of the pod that is published on the host.
type Port struct {
	HostIP   string // empty means 127.0.0.1
	HostPort int    // 0 lets the kernel choose
	PodPort  int
	Protocol string // "tcp" or empty, "udp"; only a node's plugins know others
}

// Datagrams reports whether the port is a UDP port.
func (p Port) Datagrams() bool { return strings.EqualFold(p.Protocol, "udp") }

// Listener is an open published port: a TCP listener or a UDP socket.
type Listener struct {
	Port
	net.Listener
	UDP *net.UDPConn
}

// Close closes the listener or socket.
func (l Listener) Close() error {
	if l.UDP != nil {
		return l.UDP.Close()
	}
	return l.Listener.Close()
}

// ErrPortInUse is returned for a port of the host that another program uses.
var ErrPortInUse = errdefs.ErrFailedPrecondition.WithMessage("port is in use")

// maxRange is the most ports that a text for ParsePorts may name.
const maxRange = 256

// ParsePorts reads "[[IP:][HOST]:]POD[/tcp|/udp]". Each port is a number or a range, FIRST-LAST; both ranges must have
// the same length. Without HOST the port of the host is 0. An IPv6 address stands in brackets.
func ParsePorts(s string) ([]Port, error) {
	bad := func(why string) ([]Port, error) {
		return nil, fmt.Errorf("port %q: %s (use [[IP:]HOST:]POD[/udp])", s, why)
	}
	text, protocol, _ := strings.Cut(strings.ToLower(s), "/")
	p := Port{Protocol: cmp.Or(protocol, "tcp")}
	if p.Protocol != "tcp" && p.Protocol != "udp" {
		return bad("the protocol must be tcp or udp")
	}
	host, podPort := "", text
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		host, podPort = text[:i], text[i+1:]
	}
	if j := strings.LastIndexByte(host, ':'); j >= 0 {
		p.HostIP, host = strings.Trim(host[:j], "[]"), host[j+1:]
		if net.ParseIP(p.HostIP) == nil {
			return bad("the address must be an IP address")
		}
	}
	first, n, err := ports(podPort, 1)
	if err != nil {
		return bad("pod port: " + err.Error())
	}
	firstHost, hosts := 0, n
	if host != "" {
		if firstHost, hosts, err = ports(host, 0); err != nil {
			return bad("host port: " + err.Error())
		}
	}
	switch {
	case n > maxRange:
		return bad(fmt.Sprintf("more than %d ports", maxRange))
	case firstHost == 0 && host != "" && hosts == 1: // each gets a free port
	case hosts != n:
		return bad(fmt.Sprintf("%d host ports for %d pod ports", hosts, n))
	}
	var list []Port
	for i := range n {
		one := p
		one.PodPort = first + i
		if firstHost > 0 {
			one.HostPort = firstHost + i
		}
		list = append(list, one)
	}
	return list, nil
}

// ports reads a port or a range of ports.
func ports(s string, least int) (first, n int, err error) {
	from, to, isRange := strings.Cut(s, "-")
	if first, err = number(from, least); err != nil || !isRange {
		return first, 1, err
	}
	last, err := number(to, 1)
	if err == nil && (first < 1 || last < first) {
		err = fmt.Errorf("the range %s is empty", s)
	}
	return first, last - first + 1, err
}

func number(s string, least int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > 65535 {
		return 0, fmt.Errorf("must be a number from %d to 65535", least)
	}
	return n, nil
}

// ChooseFree replaces host ports of 0 by ports that are free now, and fills in their address. Another program may take
// such a port before the pod listens; Listen then returns ErrPortInUse.
func ChooseFree(ports []Port) ([]Port, error) {
	chosen := slices.Clone(ports)
	for i, p := range chosen {
		if p.HostPort != 0 {
			continue
		}
		l, err := Listen([]Port{p})
		if err != nil {
			return nil, err
		}
		defer l[0].Close() // after the others are open, so that no port is chosen twice
		chosen[i] = l[0].Port
	}
	return chosen, nil
}

// Listen opens every port, or none. A used port is ErrPortInUse; a protocol other than TCP and UDP is refused. The
// caller closes the listeners.
func Listen(ports []Port) (listeners []Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range listeners {
				err = errors.Join(err, l.Close())
			}
			listeners = nil
		}
	}()
	for _, p := range ports {
		p.HostIP = cmp.Or(p.HostIP, "127.0.0.1")
		address := net.JoinHostPort(p.HostIP, strconv.Itoa(p.HostPort))
		l, err := p.listen(address)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			return listeners, fmt.Errorf("publish %s: %w: choose another, or stop the program that uses it", address, ErrPortInUse)
		case errors.Is(err, ErrNotSupported):
			return listeners, fmt.Errorf("publish %s: %w", address, err)
		case err != nil:
			return listeners, errclass.New(errdefs.ErrFailedPrecondition, "publish %s: %w", address, err)
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

func (p Port) listen(address string) (l Listener, err error) {
	switch {
	case p.Datagrams():
		conn, err := net.ListenPacket("udp", address)
		if err != nil {
			return l, err
		}
		l.UDP = conn.(*net.UDPConn)
		p.HostPort = conn.LocalAddr().(*net.UDPAddr).Port
	case p.Protocol == "" || strings.EqualFold(p.Protocol, "tcp"):
		if l.Listener, err = net.Listen("tcp", address); err != nil {
			return l, err
		}
		p.HostPort = l.Listener.Addr().(*net.TCPAddr).Port
	default:
		return l, fmt.Errorf("%w: protocol %s (must be TCP or UDP)", ErrNotSupported, p.Protocol)
	}
	l.Port = p
	return l, nil
}

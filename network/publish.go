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
)

// Port is a port of the pod that is published on the host.
type Port struct {
	HostIP   string // empty means 127.0.0.1
	HostPort int    // 0 lets the kernel choose
	PodPort  int
	Protocol string // "tcp" or empty; others are for a node's plugins
}

// Listener is an open published port.
type Listener struct {
	Port
	net.Listener
}

// ErrPublish is the class of the errors of ports that cannot be published.
var ErrPublish = errors.New("publish")

// ErrPortInUse is returned for a port of the host that another program has.
var ErrPortInUse = errors.New("port is in use")

// ParsePort reads "[IP:]HOST:POD", each a port number; an IPv6 address stands
// in brackets.
func ParsePort(s string) (Port, error) {
	bad := func(why string) (Port, error) {
		return Port{}, fmt.Errorf("port %q: %s (use [IP:]HOST:POD)", s, why)
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return bad("no pod port")
	}
	host, podPort := s[:i], s[i+1:]
	p := Port{Protocol: "tcp"}
	if j := strings.LastIndexByte(host, ':'); j >= 0 {
		p.HostIP, host = strings.Trim(host[:j], "[]"), host[j+1:]
		if net.ParseIP(p.HostIP) == nil {
			return bad("the address is not an IP")
		}
	}
	var err error
	if p.HostPort, err = number(host, 0); err != nil {
		return bad("host port: " + err.Error())
	}
	if p.PodPort, err = number(podPort, 1); err != nil {
		return bad("pod port: " + err.Error())
	}
	return p, nil
}

func number(s string, least int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > 65535 {
		return 0, fmt.Errorf("not a number from %d to 65535", least)
	}
	return n, nil
}

// ChooseFree gives those of ports whose host port is 0 one that is free now, and
// the address where that is.
// Another program may take it before the pod listens: that is ErrPortInUse then.
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
		defer l[0].Close() // after the others, so that none is chosen twice
		chosen[i] = l[0].Port
	}
	return chosen, nil
}

// Listen opens every port, or none: a port in use is ErrPortInUse, and a
// protocol other than TCP is refused. The caller closes the listeners.
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
		if !strings.EqualFold(p.Protocol, "tcp") && p.Protocol != "" {
			return listeners, fmt.Errorf("%w: %w %s: protocol %s, only TCP", ErrNotSupported, ErrPublish, address, p.Protocol)
		}
		l, err := net.Listen("tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			return listeners, fmt.Errorf("%w %s: %w: choose another, or end the program that has it", ErrPublish, address, ErrPortInUse)
		}
		if err != nil {
			return listeners, fmt.Errorf("%w %s: %w", ErrPublish, address, err)
		}
		p.HostPort = l.Addr().(*net.TCPAddr).Port
		listeners = append(listeners, Listener{p, l})
	}
	return listeners, nil
}

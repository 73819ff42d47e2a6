// Package netlink configures the guest's network interfaces with a few rtnetlink requests. A full library would be
// larger than the rest of the agent.
package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Conn is a connection to the kernel, for one goroutine.
type Conn struct {
	fd  int
	seq uint32
}

// Open connects.
func Open() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	return &Conn{fd: fd}, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// Link changes an interface: its hardware address unless nil, its MTU unless
// 0, and whether it is up.
func (c *Conn) Link(index int, mac net.HardwareAddr, mtu int, up bool) error {
	info := unix.IfInfomsg{Family: unix.AF_UNSPEC, Index: int32(index), Change: unix.IFF_UP}
	if up {
		info.Flags = unix.IFF_UP
	}
	m := newMessage(unix.RTM_NEWLINK, 0)
	m.add(unsafe.Slice((*byte)(unsafe.Pointer(&info)), unix.SizeofIfInfomsg))
	if mac != nil {
		m.attr(unix.IFLA_ADDRESS, mac)
	}
	if mtu > 0 {
		m.attr(unix.IFLA_MTU, binary.NativeEndian.AppendUint32(nil, uint32(mtu)))
	}
	return c.do(m, "set link")
}

// Rename renames an interface that is down.
func (c *Conn) Rename(index int, name string) error {
	info := unix.IfInfomsg{Family: unix.AF_UNSPEC, Index: int32(index)}
	m := newMessage(unix.RTM_NEWLINK, 0)
	m.add(unsafe.Slice((*byte)(unsafe.Pointer(&info)), unix.SizeofIfInfomsg))
	m.attr(unix.IFLA_IFNAME, append([]byte(name), 0))
	return c.do(m, "rename link")
}

// Address adds an address to an interface.
func (c *Conn) Address(index int, p netip.Prefix) error {
	m := newMessage(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	m.address(index, p)
	return c.do(m, "add address "+p.String())
}

// RemoveAddress removes an address from an interface.
func (c *Conn) RemoveAddress(index int, p netip.Prefix) error {
	m := newMessage(unix.RTM_DELADDR, 0)
	m.address(index, p)
	return c.do(m, "remove address "+p.String())
}

func (m *message) address(index int, p netip.Prefix) {
	info := unix.IfAddrmsg{Family: family(p.Addr()), Prefixlen: uint8(p.Bits()), Index: uint32(index)}
	if p.Addr().Is6() {
		info.Flags = unix.IFA_F_NODAD // the host ensures its uniqueness
	}
	m.add(unsafe.Slice((*byte)(unsafe.Pointer(&info)), unix.SizeofIfAddrmsg))
	m.attr(unix.IFA_LOCAL, p.Addr().AsSlice())
	m.attr(unix.IFA_ADDRESS, p.Addr().AsSlice())
}

// Route adds a route to an interface, by a gateway, or on the link without one. The gateway may lie outside the
// interface's own network.
func (c *Conn) Route(index int, to netip.Prefix, gateway netip.Addr, metric int) error {
	m := newMessage(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	m.route(index, to, gateway, metric)
	return c.do(m, "add route to "+to.String())
}

func (m *message) route(index int, to netip.Prefix, gateway netip.Addr, metric int) {
	info := unix.RtMsg{
		Family: family(to.Addr()), Dst_len: uint8(to.Bits()), Table: unix.RT_TABLE_MAIN, Protocol: unix.RTPROT_BOOT,
		Scope: unix.RT_SCOPE_LINK, Type: unix.RTN_UNICAST,
	}
	if gateway.IsValid() {
		info.Scope, info.Flags = unix.RT_SCOPE_UNIVERSE, unix.RTNH_F_ONLINK
	}
	m.add(unsafe.Slice((*byte)(unsafe.Pointer(&info)), unix.SizeofRtMsg))
	m.attr(unix.RTA_DST, to.Masked().Addr().AsSlice())
	if gateway.IsValid() {
		m.attr(unix.RTA_GATEWAY, gateway.AsSlice())
	}
	m.attr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(index)))
	if metric > 0 {
		m.attr(unix.RTA_PRIORITY, binary.NativeEndian.AppendUint32(nil, uint32(metric)))
	}
}

// RemoveRoute removes a route that Route has added. It succeeds if there is none.
func (c *Conn) RemoveRoute(index int, to netip.Prefix, gateway netip.Addr, metric int) error {
	m := newMessage(unix.RTM_DELROUTE, 0)
	m.route(index, to, gateway, metric)
	err := c.do(m, "remove route to "+to.String())
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// Neighbour sets the hardware address of a neighbour, for good.
func (c *Conn) Neighbour(index int, a netip.Addr, mac net.HardwareAddr) error {
	m := newMessage(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	info := unix.NdMsg{Family: family(a), Ifindex: int32(index), State: unix.NUD_PERMANENT}
	m.add(unsafe.Slice((*byte)(unsafe.Pointer(&info)), unix.SizeofNdMsg))
	m.attr(unix.NDA_DST, a.AsSlice())
	m.attr(unix.NDA_LLADDR, mac)
	return c.do(m, "set neighbour "+a.String())
}

// DefaultRoute adds the default route by a gateway, which may lie outside the interface's own network.
func (c *Conn) DefaultRoute(index int, gateway netip.Addr) error {
	m := newMessage(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	m.defaultRoute(index, gateway)
	return c.do(m, "add route by "+gateway.String())
}

// RemoveDefaultRoute removes the default route by a gateway.
func (c *Conn) RemoveDefaultRoute(index int, gateway netip.Addr) error {
	m := newMessage(unix.RTM_DELROUTE, 0)
	m.defaultRoute(index, gateway)
	return c.do(m, "remove route by "+gateway.String())
}

func (m *message) defaultRoute(index int, gateway netip.Addr) {
	info := unix.RtMsg{
		Family: family(gateway), Table: unix.RT_TABLE_MAIN, Protocol: unix.RTPROT_BOOT,
		Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_UNICAST, Flags: unix.RTNH_F_ONLINK,
	}
	m.add(unsafe.Slice((*byte)(unsafe.Pointer(&info)), unix.SizeofRtMsg))
	m.attr(unix.RTA_GATEWAY, gateway.AsSlice())
	m.attr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(index)))
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// do sends a request and reads its acknowledgement.
func (c *Conn) do(m *message, what string) error {
	c.seq++
	if err := unix.Sendto(c.fd, m.bytes(c.seq), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	buf := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(c.fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		errno, ok := ack(buf[:n], c.seq)
		if !ok {
			continue
		}
		if errno != 0 {
			return fmt.Errorf("%s: %w", what, errno)
		}
		return nil
	}
}

// ack finds the acknowledgement of a request among the kernel's messages.
func ack(b []byte, seq uint32) (unix.Errno, bool) {
	ne := binary.NativeEndian
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(ne.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return unix.EPROTO, true
		}
		if ne.Uint16(b[4:]) == unix.NLMSG_ERROR && ne.Uint32(b[8:]) == seq && size >= unix.SizeofNlMsghdr+4 {
			return unix.Errno(-int32(ne.Uint32(b[unix.SizeofNlMsghdr:]))), true
		}
		b = b[min(len(b), align(size)):]
	}
	return 0, false
}

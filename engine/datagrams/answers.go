package datagrams

import (
	"bufio"
	"container/list"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// receive forwards the guest's answers to the flows' clients until the stream ends. It drops answers without a
// flow.
func (r *Relay) receive(g *guest) {
	defer func() {
		g.conn.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.guest == g {
			r.guest = nil
		}
	}()
	in, buf := bufio.NewReader(g.conn), make([]byte, agentv1.MaxDatagram)
	for {
		d, err := agentv1.ReadDatagram(in, buf)
		if err != nil {
			return
		}
		r.mu.Lock()
		e := g.flows[d.Flow]
		if e == nil || d.Port == 0 {
			r.mu.Unlock()
			continue
		}
		c := g.used(e).client
		r.mu.Unlock()
		// As in any network, an unreachable client loses its answer.
		_, _, _ = c.socket.WriteMsgUDPAddrPort(d.Data, []byte(c.to), c.from)
	}
}

// expire ends idle flows, and the stream with the last flow.
func (r *Relay) expire(g *guest) {
	tick := time.NewTicker(r.idle / 8)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			return
		}
		over, ended := r.over(g)
		if ended {
			g.conn.Close()
			return
		}
		for _, id := range over {
			g.write(make([]byte, agentv1.DatagramHeader), id, 0, 0)
		}
	}
}

// over removes idle flows and those with a closed socket. It reports whether the stream has ended or has no flows.
func (r *Relay) over(g *guest) (ids []uint32, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.guest != g {
		return nil, true
	}
	var next *list.Element
	for e := g.order.Front(); e != nil; e = next {
		next = e.Next()
		if f := e.Value.(*flow); time.Since(f.used) >= r.idle || !r.sockets[f.socket] {
			ids = append(ids, g.forget(e))
		}
	}
	if g.order.Len() == 0 {
		r.guest = nil
	}
	return ids, r.guest == nil
}

// reportDestination makes the kernel report the destination address of each datagram, because the answer must come
// from there.
func reportDestination(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var done error
	err = raw.Control(func(fd uintptr) {
		if done = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1); done != nil {
			done = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
	})
	if err == nil {
		err = os.NewSyscallError("setsockopt", done)
	}
	if err != nil {
		return fmt.Errorf("publish a UDP port: %w", err)
	}
	return nil
}

// source converts the control message of a datagram to the one that sends the answer from the same address. The
// interface matters only for link-local addresses.
func source(control []byte) string {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return ""
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			var info unix.Inet6Pktinfo
			copy(info.Addr[:], m.Data)
			if ip := net.IP(info.Addr[:]); ip.To4() == nil && ip.IsLinkLocalUnicast() {
				info.Ifindex = binary.NativeEndian.Uint32(m.Data[16:])
			}
			return string(unix.PktInfo6(&info))
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			var info unix.Inet4Pktinfo
			copy(info.Spec_dst[:], m.Data[4:8])
			return string(unix.PktInfo4(&info))
		}
	}
	return ""
}

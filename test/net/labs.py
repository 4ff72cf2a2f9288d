# SPDX-License-Identifier: GPL-2.0-only
"""The standard laboratories.

LAB-A    L 192.0.2.2 -- ra R rb -- 198.51.100.2 W; R masquerades to rb unless told otherwise.
LAB-2W   LAB-A without NAT and with a second uplink rb2 -- 203.0.113.2 W2; W and W2 both own 198.18.0.10.
LAB-6    LAB-A in IPv6: L 2001:db8:1::2 -- ra R rb -- 2001:db8:2::2 W, without NAT. R and W know each other's link-local
         addresses as well.
LAB-T    client -- router == IPIP tunnel tun0 == remote -- server; router masquerades what enters the tunnel
         and forwards port 8080 of its tunnel address to the client.
"""
import dataclasses

from lab import Lab, check

L_ADDR, RA_ADDR = "192.0.2.2", "192.0.2.1"
W_ADDR, RB_ADDR = "198.51.100.2", "198.51.100.1"
W2_ADDR, RB2_ADDR = "203.0.113.2", "203.0.113.1"
SERVICE = "198.18.0.10"

UDP_WATCH = {"up": "udp dport 9", "down": "udp sport 9"}


def lab_a(nat=True, watch=None, roles=("L", "R", "W"), lan=True):
    """LAB-A. `watch`: counters in R's forward chain; lan=False leaves L and ra to the caller."""
    lab = Lab(*roles)
    try:
        if lan:
            lab.veth("L", "la", "R", "ra")
            lab["L"].ip(f"addr add {L_ADDR}/24 dev la\nroute add default via {RA_ADDR}")
            lab["R"].ip(f"addr add {RA_ADDR}/24 dev ra")
        lab.veth("W", "wa", "R", "rb")
        lab["R"].ip(f"addr add {RB_ADDR}/24 dev rb")
        lab["W"].ip(f"addr add {W_ADDR}/24 dev wa")
        lab["R"].sysctl(net_ipv4_ip_forward=1)
        if nat:
            masquerade(lab)
        else:
            lab["W"].ip(f"route add 192.0.2.0/24 via {RB_ADDR}")
        lab.watch(**(watch or UDP_WATCH))
    except BaseException:
        lab.close()
        raise
    return lab


def masquerade(lab, dev="rb"):
    lab["R"].nft(f"""table ip nat {{
        chain post {{ type nat hook postrouting priority srcnat; oifname "{dev}" masquerade; }}
    }}""")


def lab_2w(nat=False, watch=None, roles=("L", "R", "W", "W2")):
    """LAB-2W."""
    lab = lab_a(nat, watch, roles)
    try:
        lab.veth("W2", "wa", "R", "rb2")
        lab["R"].ip(f"""addr add {RB2_ADDR}/24 dev rb2
            route add default via {W_ADDR} metric 100
            route add default via {W2_ADDR} metric 200""")
        lab["W2"].ip(f"addr add {W2_ADDR}/24 dev wa")
        if not nat:
            lab["W2"].ip(f"route add 192.0.2.0/24 via {RB2_ADDR}")
        for role in ("W", "W2"):
            lab[role].ip(f"addr add {SERVICE}/32 dev lo")
    except BaseException:
        lab.close()
        raise
    return lab


L6, RA6, RB6, W6 = "2001:db8:1::2", "2001:db8:1::1", "2001:db8:2::1", "2001:db8:2::2"
RB_LINK, W_LINK = "fe80::b:1", "fe80::b:2"


def lab_6(watch=None, roles=("L", "R", "W")):
    """LAB-6."""
    lab = Lab(*roles, ipv6=True)
    try:
        lab.veth("L", "la", "R", "ra")
        lab.veth("W", "wa", "R", "rb")
        lab["L"].ip(f"addr add {L6}/64 dev la nodad\nroute add ::/0 via {RA6}")
        lab["R"].ip(f"""addr add {RA6}/64 dev ra nodad
            addr add {RB6}/64 dev rb nodad
            addr add {RB_LINK}/64 dev rb nodad""")
        lab["W"].ip(f"""addr add {W6}/64 dev wa nodad
            addr add {W_LINK}/64 dev wa nodad
            route add 2001:db8:1::/64 via {RB6}""")
        lab["R"].sysctl_set("net/ipv6/conf/all/forwarding", 1)
        lab.watch(**(watch or UDP_WATCH))
    except BaseException:
        lab.close()
        raise
    return lab


CLIENT, SERVER = "192.0.2.2", "198.51.100.2"
TUNNEL_NEAR, TUNNEL_FAR = "10.255.0.1", "10.255.0.2"
WAN_NEAR, WAN_FAR = "203.0.113.1", "203.0.113.2"
FORWARDED_PORT = 8080


V4, V6 = 4, 6


@dataclasses.dataclass(frozen=True)
class Tunnel:
    """The tunnel of LAB-T: what its addresses are. Inside, the router is `near`, the remote `far`."""
    mode: str
    inner: int
    outer: int
    room: int  # bytes that its headers take of the MTU

    def _pick(self, version, four, six):
        return four if version == V4 else six

    @property
    def client(self):
        return self._pick(self.inner, CLIENT, "2001:db8:1::2")

    @property
    def client_gateway(self):
        return self._pick(self.inner, "192.0.2.1", "2001:db8:1::1")

    @property
    def server(self):
        return self._pick(self.inner, SERVER, "2001:db8:2::2")

    @property
    def server_gateway(self):
        return self._pick(self.inner, "198.51.100.1", "2001:db8:2::1")

    @property
    def server_net(self):
        return self._pick(self.inner, "198.51.100.0/24", "2001:db8:2::/64")

    @property
    def near(self):
        return self._pick(self.inner, TUNNEL_NEAR, "2001:db8:ff::1")

    @property
    def far(self):
        return self._pick(self.inner, TUNNEL_FAR, "2001:db8:ff::2")

    @property
    def wan_near(self):
        return self._pick(self.outer, WAN_NEAR, "2001:db8:a::1")

    @property
    def wan_far(self):
        return self._pick(self.outer, WAN_FAR, "2001:db8:a::2")

    @property
    def mtu(self):
        return 1500 - self.room


IPIP = Tunnel("ipip", V4, V4, 20)
TUNNELS = {tunnel.mode: tunnel for tunnel in (
    IPIP, Tunnel("ip6ip6", V6, V6, 48), Tunnel("4in6", V4, V6, 48), Tunnel("6in4", V6, V4, 20))}


def lab_t(watch=None):
    """LAB-T without the tunnel: open_tunnel() makes it."""
    return lab_tunnel(IPIP, watch)


def lab_tunnel(tunnel, watch=None):
    """LAB-T for any tunnel, without it: open_tunnel() or declare_tunnel() makes it."""
    lab = Lab("client", "router", "remote", "server", router="router", ipv6=V6 in (tunnel.inner, tunnel.outer))

    def address(role, text, version, dev):
        lab[role].ip(f"addr add {text}/{24 if version == V4 else 64} dev {dev}" + (" nodad" if version == V6 else ""))

    try:
        lab.veth("client", "eth0", "router", "lan0")
        lab.veth("router", "wan0", "remote", "wan0")
        lab.veth("remote", "lan0", "server", "eth0")
        for role, text, version, dev in (("client", tunnel.client, tunnel.inner, "eth0"),
                                         ("router", tunnel.client_gateway, tunnel.inner, "lan0"),
                                         ("router", tunnel.wan_near, tunnel.outer, "wan0"),
                                         ("remote", tunnel.wan_far, tunnel.outer, "wan0"),
                                         ("remote", tunnel.server_gateway, tunnel.inner, "lan0"),
                                         ("server", tunnel.server, tunnel.inner, "eth0")):
            address(role, text, version, dev)
        everything = "0.0.0.0/0" if tunnel.inner == V4 else "::/0"
        lab["client"].ip(f"route add {everything} via {tunnel.client_gateway}")
        lab["server"].ip(f"route add {everything} via {tunnel.server_gateway}")
        for role in ("router", "remote"):
            lab[role].sysctl(net_ipv4_ip_forward=1)
            lab[role].sysctl_set("net/ipv6/conf/all/forwarding", 1)
        family = "ip" if tunnel.inner == V4 else "ip6"
        lab["router"].nft(f"""table {family} nat {{
            chain pre {{ type nat hook prerouting priority dstnat;
                iifname "tun0" tcp dport {FORWARDED_PORT} dnat to {tunnel.client}; }}
            chain post {{ type nat hook postrouting priority srcnat; oifname "tun0" masquerade; }}
        }}""")
        lab.watch(**(watch or {"seen": 'meta oifname "tun0"', "seen_back": 'meta iifname "tun0"'}))
    except BaseException:
        lab.close()
        raise
    return lab


def build_tunnel(lab, tunnel, make):
    """tun0 on both routers by make(role, local, remote), until that returns why not. Starts both daemons."""
    for role, local, remote, inner, peer in (("remote", tunnel.wan_far, tunnel.wan_near, tunnel.far, tunnel.near),
                                             ("router", tunnel.wan_near, tunnel.wan_far, tunnel.near, tunnel.far)):
        lab.at(role).start()
        why = make(role, local, remote)
        if why:
            return why
        lab[role].ip(f"addr add {inner} peer {peer} dev tun0" + (" nodad" if tunnel.inner == V6 else ""))
        lab[role].ip(f"link set tun0 up\nroute replace {peer} dev tun0")
    lab["router"].ip(f"route add {tunnel.server_net} dev tun0")
    return None


def declare_tunnel(lab, tunnel, *words):
    """tun0 on both routers, ftctl's own. The text of the refusal when the daemon refuses it."""
    def make(role, local, remote):
        made = lab.ftctl_raw("tunnel", "add", "tun0", "mode", tunnel.mode, "local", local, "remote", remote, *words)
        if made.returncode == 2:
            return made.stderr.strip()
        check(made.returncode == 0, f"ftctl tunnel add on {role}: exit {made.returncode}: {made.stderr}")
        return None

    return build_tunnel(lab, tunnel, make)


def kernel_has_ipip(lab):
    """Tries, in a namespace of the lab."""
    made = lab["server"].run("ip", "link", "add", "probe0", "type", "ipip", "local", "10.9.9.1", "remote", "10.9.9.2",
                             ok=False)
    if made.returncode == 0:
        lab["server"].ip("link del probe0")
    return made.returncode == 0


def open_tunnel(lab, tunnel=IPIP):
    """tun0 on both routers: the kernel's ipip where that is the mode and there is one, else ftctl's. Who makes it."""
    if tunnel.mode == "ipip" and kernel_has_ipip(lab):
        build_tunnel(lab, tunnel, lambda role, local, remote: lab[role].ip(
            f"link add tun0 type ipip local {local} remote {remote}"))
        return "kernel"
    why = declare_tunnel(lab, tunnel)
    check(not why, f"ftctl tunnel add: {why}")
    return "ftctl"

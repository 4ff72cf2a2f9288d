# SPDX-License-Identifier: GPL-2.0-only
"""The namespaces of a scenario, and the router's rules."""
import sessions
from lab import Lab
from shapes import SESSION, TUNNELS, VLAN

MACS = {"client": "02:00:00:00:01:01", "lan0": "02:00:00:00:01:02", "wan0": "02:00:00:00:02:01",
        "remote": "02:00:00:00:02:02", "remote-lan0": "02:00:00:00:03:01"}
DEVICES = {"client": ("eth0",), "router": ("lan0", "wan0"), "remote": ("wan0", "lan0"), "server": ("eth0",)}


def families(scenario):
    return dict.fromkeys((scenario.ip, scenario.outer))


def make(scenario):
    six = any(ip.version == 6 for ip in families(scenario))
    return Lab(*DEVICES, router="router", ipv6=tuple(DEVICES) if six else False)


def build(lab, scenario):
    lab.veth("client", "eth0", "router", "lan0", f"address {MACS['client']}", f"address {MACS['lan0']}")
    lab.veth("router", "wan0", "remote", "wan0", f"address {MACS['wan0']}", f"address {MACS['remote']}")
    lab.veth("remote", "lan0", "server", "eth0", f"address {MACS['remote-lan0']}")
    for role, devices in DEVICES.items():
        for device in devices:
            # NAPI, without which a veth takes no XDP frames; the device must be up by then.
            lab[role].run("ethtool", "-K", device, "gro", "on")
    for role in ("router", "remote"):
        lab[role].sysctl(net_ipv4_ip_forward=1)
        if scenario.vlan:
            lab[role].ip(f"link add link wan0 name {scenario.wan} type vlan id {VLAN}\nlink set {scenario.wan} up")
    if scenario.pppoe:
        sessions.join(lab, (("router", "wan0", "10.64.0.1", 0), ("remote", "wan0", "10.64.0.2", 0)), SESSION)
    for ip in families(scenario):
        addresses(lab, scenario, ip)
    if scenario.tunnel:
        open_tunnel(lab, scenario)
    else:
        lab["router"].ip(f"route add {scenario.ip.server_net} via {scenario.ip.wan_far}")
        lab["remote"].ip(f"route add {scenario.ip.client_net} via {scenario.ip.wan_near}")


def addresses(lab, scenario, ip):
    for role, device, address in (
            ("client", "eth0", ip.client), ("router", "lan0", ip.lan_router), ("router", scenario.wan, ip.wan_near),
            ("remote", scenario.wan, ip.wan_far), ("remote", "lan0", ip.lan_remote), ("server", "eth0", ip.server)):
        lab[role].ip(f"addr add {address}/{ip.bits} dev {device}{' nodad' if ip.version == 6 else ''}")
    lab["client"].ip(f"route add default via {ip.lan_router}")
    lab["server"].ip(f"route add default via {ip.lan_remote}")
    if ip.version == 6:
        for role in ("router", "remote"):
            lab[role].sysctl_set("net/ipv6/conf/all/forwarding", 1)


def open_tunnel(lab, scenario):
    ip, outer, tunnel = scenario.ip, scenario.outer, TUNNELS[scenario.tunnel]
    nodad = " nodad" if ip.version == 6 else ""
    for role, local, remote, inner, peer, net in (
            ("router", outer.wan_near, outer.wan_far, ip.tun_near, ip.tun_far, ip.server_net),
            ("remote", outer.wan_far, outer.wan_near, ip.tun_far, ip.tun_near, ip.client_net)):
        lab[role].ip(f"""link add tun0 {tunnel.link} local {local} remote {remote}
            addr add {inner} peer {peer} dev tun0{nodad}
            link set tun0 up
            route add {net} dev tun0""")


def rules(lab, scenario, flowtable):
    """The same rules for every path, the statement that adds flows apart."""
    table = add = nat = ""
    if flowtable:
        table = "flowtable fast { hook ingress priority 0; devices = { lan0, wan0 }; }"
        add = "meta l4proto { tcp, udp } flow add @fast"
    if scenario.masquerade:
        nat = f"""chain post {{ type nat hook postrouting priority srcnat;
            oifname "{scenario.upper}" masquerade; }}"""
    lab["router"].nft(f"""flush ruleset
        table inet bench {{
            counter forwarded {{ }}
            {table}
            chain forward {{ type filter hook forward priority 0;
                {add}
                ct state new,established counter name forwarded
            }}
            {nat}
        }}""")

#!/bin/sh
# Runs as root at each boot of the proxy's machine: public resolvers, the package in the version that
# the metadata asks for, the token, the service. What is as it should be is left alone.
set -eu

attribute() {
    curl -fsS -H Metadata-Flavor:Google \
        "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}

# changed FILE: writes standard input to it if it differs; whether it did.
changed() {
    mkdir -p "$(dirname "$1")"
    cat >"$1.new"
    if cmp -s "$1.new" "$1"; then
        rm "$1.new"
        return 1
    fi
    mv "$1.new" "$1"
}

version=$(attribute sandbox-proxy-version)
package=$(attribute sandbox-proxy-package)
minutes=$(attribute sandbox-proxy-idle-minutes)
restart=no

# The metadata server's answers are those of the sandboxes' policy: names that lead nowhere. The empty
# DNS= takes out what the image's own files have added.
dns=no
if printf '[Resolve]\nDNS=\nDNS=8.8.8.8 1.1.1.1\nDomains=~.\n' |
    changed /etc/systemd/resolved.conf.d/public-dns.conf; then
    dns=yes
fi
for network in /run/systemd/network/*.network; do
    [ -e "$network" ] || continue
    if printf '[DHCPv4]\nUseDNS=false\n' |
        changed "/etc/systemd/network/$(basename "$network").d/no-dhcp-dns.conf"; then
        dns=yes
    fi
done
if [ "$dns" = yes ]; then
    systemctl restart systemd-networkd systemd-resolved
fi

# Also when it was installed before, but in another version.
installed=$(sandbox-egress-proxy --version 2>/dev/null || true)
if [ "$installed" != "sandbox-egress-proxy $version, protocol 1" ]; then
    apt-get update
    apt-get install -y --no-install-recommends ca-certificates libuv1 libcjson1 libmbedcrypto7 \
        libc-ares2 libcurl4
    folder=$(mktemp -d)
    gcloud storage cp "$package" "$folder/package"
    tar -C "$folder" -xzf "$folder/package" usr/bin/sandbox-egress-proxy \
        usr/lib/systemd/system/sandbox-egress-proxy.service
    install -m 0755 "$folder/usr/bin/sandbox-egress-proxy" /usr/bin/
    install -m 0644 "$folder/usr/lib/systemd/system/sandbox-egress-proxy.service" /etc/systemd/system/
    rm -r "$folder"
    systemctl daemon-reload
    restart=yes
fi

# Its log lines, refusals among them, go to Cloud Logging from the journal.
if [ ! -d /opt/google-cloud-ops-agent ]; then
    install -m 0755 -d /etc/apt/keyrings
    curl -fsSL https://packages.cloud.google.com/apt/doc/apt-key.gpg -o /etc/apt/keyrings/google-cloud.asc
    echo "deb [signed-by=/etc/apt/keyrings/google-cloud.asc] https://packages.cloud.google.com/apt google-cloud-ops-agent-bookworm-all main" \
        >/etc/apt/sources.list.d/google-cloud-ops-agent.list
    apt-get update
    apt-get install -y google-cloud-ops-agent
fi

# The token is read with the machine's own account at each boot, and lies in memory only.
umask 077
token=$(gcloud secrets versions access latest --secret=sandbox-proxy-token)
mkdir -p /run/sandbox-egress-proxy
if changed /run/sandbox-egress-proxy/env <<SETTINGS
SANDBOX_PROXY_VERSION=$version
SANDBOX_PROXY_TOKEN=$token
SANDBOX_PROXY_IDLE_EXIT_MINUTES=$([ "$minutes" = 0 ] || echo "$minutes")
SANDBOX_PROXY_OPTIONS=--listen 0.0.0.0:3128 --admin 0.0.0.0:3129 --resolver 8.8.8.8,1.1.1.1
SETTINGS
then
    restart=yes
fi
ln -sfn /run/sandbox-egress-proxy/env /etc/sandbox-egress-proxy.env

# When it has ended because nobody needs it, the machine goes too.
if changed /etc/systemd/system/sandbox-egress-proxy.service.d/power-off.conf <<'UNIT'
[Service]
ExecStopPost=+/bin/sh -c 'if [ "$$EXIT_STATUS" = 100 ]; then systemctl poweroff; fi'
UNIT
then
    systemctl daemon-reload
fi
systemctl enable --quiet sandbox-egress-proxy
if [ "$restart" = yes ]; then
    systemctl restart sandbox-egress-proxy
else
    systemctl start sandbox-egress-proxy
fi

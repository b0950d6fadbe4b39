# One image for every process of Plimsoll: the command says which. Tags, not digests: see compose.yaml.
FROM python:3.11-slim-bookworm AS build
# The one place besides deploy/local/bootstrap.sh that names uv's version; a test compares them.
RUN pip install --no-cache-dir uv==0.13.9
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=/opt/plimsoll
WORKDIR /src
COPY pyproject.toml uv.lock ./
COPY libs libs
COPY services services
# What runs in production: neither the development tools nor devkit, and no path back into /src.
RUN uv sync --locked --no-dev --no-editable --package plimsoll-quota-enforcer

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --no-create-home plimsoll
COPY --from=build /opt/plimsoll /opt/plimsoll
ENV PATH=/opt/plimsoll/bin:$PATH PYTHONUNBUFFERED=1
USER plimsoll
WORKDIR /
EXPOSE 8080
CMD ["python", "-m", "plimsoll_quota_enforcer"]
